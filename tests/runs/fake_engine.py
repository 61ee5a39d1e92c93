"""An engine without a model: takes the lock, writes steps, obeys commands. RLHF_STUDIO_FAKE_ENGINE says how it behaves.

train       writes as many steps as the run has and finishes (default)
hold        writes steps until it is told to stop
crash       the same, but exits with code 3 without a word after its second step
unborn      prints a reason and exits before it takes the lock
locked      takes the lock and dies by SIGKILL before it writes
forked      as hold, with a forked helper that outlives it
deaf        as hold, but ignores SIGTERM and commands
gate        waits before the lock until the file ".gate" appears beside the run folder
"""

import os
import signal
import sys
import time
from pathlib import Path

from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import Heartbeat, RunWriter


def note(folder: Path, what: str) -> None:
    """One line in a journal beside the run folder: the tests see who worked when."""
    with (folder.parent / ".journal").open("a") as journal:
        journal.write(f"{what} {folder.name}\n")


def main() -> int:
    mode = os.environ.get("RLHF_STUDIO_FAKE_ENGINE", "train")
    folder = Path(sys.argv[2])
    if mode == "unborn":
        print("model.policy: there is no model in this folder")
        return 2
    while mode == "gate" and not (folder.parent / ".gate").exists():
        time.sleep(0.01)
    with EngineLock(folder):
        if mode == "locked":
            os.kill(os.getpid(), signal.SIGKILL)
        note(folder, "begin")
        if mode == "forked" and os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        if mode == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with RunWriter(folder) as writer, Heartbeat(folder, 0.05):
            code = work(folder, writer, mode)
        note(folder, "end")
    return code


def work(folder: Path, writer: RunWriter, mode: str) -> int:
    writer.set_state("loading", "Loading nothing", device="cpu")
    writer.set_state("running")
    step, total = RunReader(folder).status().step, 3
    while mode in ("hold", "forked", "deaf", "crash") or step < total:
        for command in writer.pending_commands() if mode != "deaf" else []:
            writer.acknowledge(command.id, "done")
            if command.kind == "stop":
                writer.set_state("stopped")
                return 3
        step += 1
        writer.commit_step(StepRecord(step, {"objective/scores": float(step)}, []))
        if mode == "crash" and step == 2:
            print("out of something")
            sys.stdout.flush()
            os._exit(3)
        time.sleep(0.005)
    writer.set_state("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
