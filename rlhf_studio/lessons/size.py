"""How many steps the bundled lesson run has, and how many responses a step: from its settings, without loading or unpacking the run."""

from __future__ import annotations

import zipfile

import yaml

from rlhf_studio.config.bundled import LESSON_RUN, RECORDED


def _size() -> tuple[int, int]:
    with zipfile.ZipFile(LESSON_RUN) as files:
        ppo = yaml.safe_load(files.read(f"{RECORDED}/config.yaml"))["ppo"]
    return int(ppo["steps"]), int(ppo["batch_size"])


STEPS, RESPONSES = _size()
