"""Plays runs in leases of a stand-in for ZeroGPU, and prints what viewers saw: ``python deploy/zerogpu/tests/scenarios.py FOLDER``.

A process of its own, as the app is one: torch is loaded in it, and has computed nothing when workers are forked.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradio.context import LocalContext

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent), str(HERE)]  # the repository, the example, and this folder

import stand_in  # noqa: E402
from stand_in import Grant, Refuse  # noqa: E402

sys.modules["spaces"] = stand_in  # before zero_app asks for it

import zero_app  # noqa: E402
from leases.loop import Leases  # noqa: E402

from rlhf_studio.config import RunConfig  # noqa: E402
from rlhf_studio.config.recipes import load_recipe  # noqa: E402
from rlhf_studio.runs.queue import Dispatcher  # noqa: E402
from rlhf_studio.runs.workspace import Workspace  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

STEPS = 4  # two in each lease of 60 seconds, as a step takes 20, and a quarter more is kept for a slower one
SPENT = "You have exceeded your free ZeroGPU quota (60s requested vs. 3s left). Try again in 9:12:00. "
NO_QUOTA = Refuse("ZeroGPU quota exceeded", SPENT)
PLANS: dict[str, list[list[Refuse | Grant]]] = {  # each list is used up when somebody starts or resumes the run
    "taken": [[Grant(), Grant(warm=True, killed=("update", 4))], [Grant(ends=("advantages", 3))], [Grant()]],
    "quota": [[NO_QUOTA], [NO_QUOTA], [Grant(), NO_QUOTA], [Grant()]],
}
WORKING = ("queued", "loading", "running", "paused")


def settings() -> RunConfig:
    """A run of the tiny world with little to do; one thread, because sums depend on the number of threads."""
    config = load_recipe("world").config.model_dump(mode="json")
    config["ppo"] |= {"steps": STEPS, "batch_size": 8, "mini_batch_size": 4, "ppo_epochs": 1}
    config["generation"] |= {"response_length": 6}
    config["engine"] |= {"threads": 1, "watch_every": 100}
    return RunConfig.model_validate(config)


def asked_by(token: str, ask: Callable[[], Any]) -> Any:
    """Do something as Gradio does it for whoever sends this header."""
    LocalContext.request.set(SimpleNamespace(headers={"x-ip-token": token}))
    try:
        return ask()
    finally:
        LocalContext.request.set(None)


@contextmanager
def watched(workspace: Workspace, states: list[list[Any]]) -> Iterator[None]:
    """Somebody reads the run all the time: what the states and steps were, one after the other."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            for run in workspace.runs():
                if not states or states[-1] != [run.state, run.step]:
                    states.append([run.state, run.step])

    viewer = threading.Thread(target=look)
    viewer.start()
    try:
        yield
    finally:
        done.set()
        viewer.join()


def until_it_waits(workspace: Workspace, run: str) -> dict[str, Any]:
    """What a viewer sees when nothing works on the run any more."""
    wait_until(lambda: not stand_in.plan and workspace.status(run).state not in WORKING, 120)
    status = workspace.status(run)
    saved = [checkpoint.step for checkpoint in workspace.reader(run).checkpoints()]
    return {"state": status.state, "cause": status.cause, "step": status.step, "saved": saved}


def play(workspace: Workspace, plans: Sequence[list[Refuse | Grant]]) -> dict[str, Any]:
    """Start a run, and resume it each time that it waits."""
    stand_in.asked.clear()
    states: list[list[Any]] = []
    with watched(workspace, states):
        stand_in.plan[:] = plans[0]
        run = asked_by("person 0", lambda: workspace.submit(settings()))
        waited = [until_it_waits(workspace, run)]
        for number, plan in enumerate(plans[1:], start=1):
            stand_in.plan[:] = plan
            asked_by(f"person {number}", lambda: workspace.resume(run))
            waited.append(until_it_waits(workspace, run))
    return {"folder": str(workspace.run_dir(run)), "seen": states, "waited": waited, "asked": list(stand_in.asked)}


def main(root: Path) -> None:
    """Play all, and an ordinary run; one JSON object on the last line."""
    leases, played = Leases(zero_app.take_lease), dict[str, Any]()
    ordinary = Workspace(root / "ordinary")
    by_engine = Dispatcher(ordinary, interval=0.01)
    by_engine.start()
    run = ordinary.submit(settings())
    for name, plans in PLANS.items():
        workspace = Workspace(root / name, on_queued=leases.askers.note)
        queue = Dispatcher(workspace, leases, interval=0.01)
        queue.start()
        played[name] = play(workspace, plans)
        queue.stop()
    wait_until(lambda: ordinary.status(run).state == "finished", 120)
    by_engine.stop()
    print(json.dumps({"ordinary": {"folder": str(ordinary.run_dir(run))}, **played}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
