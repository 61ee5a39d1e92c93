"""One of two processes that train the stand-in together: ``RANK=0 WORLD_SIZE=2 ... python -m tests.attach.two_processes FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rlhf_studio.attach import Studio, recording
from rlhf_studio.runs.commands import send_command
from tests.attach.stand_in import trainer
from tests.waiting import wait_until


class StopAt(TrainerCallback):
    """A person who presses Stop and save during the second step."""

    def __init__(self, studio: Studio):
        self.studio = studio

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        own = self.studio._session.recording
        if state.global_step == 1 and own is not None:
            send_command(own.run_dir, "stop")
            wait_until(lambda: own.asked("stop"))


def main(folder: Path) -> None:
    recording.LOOK_SECONDS = 0.01
    watched, studio = trainer(folder / "out", steps=8), Studio(run="two", workspace=folder)
    watched.add_callback(StopAt(studio))
    studio.watch(watched)
    watched.train()
    own = {"steps": watched.state.global_step, "seen": [step["ids"] for step in watched.seen]}
    (folder / f"rank-{watched.args.process_index}.json").write_text(json.dumps(own))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
