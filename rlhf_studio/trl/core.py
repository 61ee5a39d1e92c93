"""What old programs import from ``trl.core``."""

from __future__ import annotations

from rlhf_studio.trl.program.helpers import LengthSampler, respond_to_batch, set_seed

__all__ = ["LengthSampler", "respond_to_batch", "set_seed"]
