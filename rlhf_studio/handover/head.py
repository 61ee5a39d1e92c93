"""The beginning of a reward file: what its parts import."""

from __future__ import annotations

import fcntl  # noqa: F401
import importlib.util  # noqa: F401
import json  # noqa: F401
import os  # noqa: F401
import re  # noqa: F401
import threading  # noqa: F401
import unicodedata  # noqa: F401
import warnings  # noqa: F401
from collections import deque  # noqa: F401
from collections.abc import Callable, Sequence  # noqa: F401
from fractions import Fraction  # noqa: F401
from pathlib import Path  # noqa: F401
from types import SimpleNamespace  # noqa: F401
from typing import Any, BinaryIO  # noqa: F401


class ComponentError(ValueError):
    """A rule has no score for a response."""
