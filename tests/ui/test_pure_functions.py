"""Functions of the scripts that need no page, called in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rlhf_studio.ui.html import ASSETS


def test_numbers_texts_and_long_series() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    command = [node, str(Path(__file__).with_name("pure_functions.mjs")), str(ASSETS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout)
    assert given["numbers"] == ["−1.00", "0.00", "–", "0.00", "123,456", "1,060.1934", "1,000", "7,000,000,000"]
    assert given["dated"] == ["as of step 4", "", "", ""]
    assert given["share"] == "9.1\u202f%"
    assert given["durations"] == ["1:15", "1:01:40", "–"]
    assert given["smooth"] == [[1, None, 3], [pytest.approx(2)] * 3]
    assert given["axis"] == [300, 30, 4, 4] and given["steps"] == [20, 40, 50]
    assert given["chances"] == ["0.12\u202f%", "25.0\u202f%", ""]
    assert given["text"].startswith("a⟨␀⟩b⟨U+202E⟩c d⟨U+D800⟩e") and given["text"].count("\u0301") == 4
