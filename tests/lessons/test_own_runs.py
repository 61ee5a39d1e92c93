"""Runs of a workspace under the microscope, asked as the app asks: they show what was recorded; what cannot be shown says why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.config import SFTRunConfig
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.lessons import answers
from rlhf_studio.lessons.server import answer
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.learn.computing import NotComputed
from rlhf_studio.ui.learn.page import LearnPage
from tests.engine.conftest import small_config
from tests.ui.train_helpers import VIEWER

STEPS, RESPONSES, WITH_LAST_PASS = 4, 8, 3
PPO = {"kl_estimator": "k3", "gamma": 0.97, "kl_coef": 0.137, "kl_controller": "adaptive", "kl_horizon": 10, "cliprange": 0.15}


def write_run(root: Path, name: str, steps: int = STEPS, **changes: dict[str, Any]) -> Path:
    """A run on random models, as the engine and the store make it, with probes."""
    config = small_config(root, engine={"watch_prompts": 2}, **changes)
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    folder = root / "runs" / name
    folder.parent.mkdir(exist_ok=True)
    create_run(folder, config, name=name)
    writer = RunWriter(folder)
    watched, _ = trainer.first_answers()
    writer.watched(0, watched)
    if trainer.probes is not None:
        writer.probes(trainer.probes.texts(), trainer.probes.of_start())
    for _ in range(steps):
        writer.commit_step(trainer.step())
    writer.close()
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    write_run(folder, "own", ppo=PPO)
    write_run(folder, "no-critic", 1, ppo={"advantage": "rloo", "responses_per_prompt": 4})
    create_run(folder / "runs" / "waiting", small_config(folder), name="waiting")
    create_run(folder / "runs" / "sft", SFTRunConfig(), name="sft")
    return folder


@pytest.fixture(scope="module")
def own(root: Path) -> RunReader:
    return RunReader(root / "runs" / "own")


def asked(root: Path, run: str, op: str, scene: str = "", lesson: str = "one_sample", **more: Any) -> Any:
    """What the process answers when the app asks for a run; it must be plain data."""
    actual = answer({"op": op, "lesson": lesson, "scene": scene, "folder": str(root / "runs" / run), "as_of": "1", **more})
    return json.loads(json.dumps(actual, allow_nan=False))


def shown_values(picture: dict[str, Any]) -> np.ndarray:
    return np.array([item["value"] for item in picture["items"]])


def test_every_screen_begins_with_what_was_recorded(root: Path, own: RunReader) -> None:
    described = asked(root, "own", "describe")
    assert "problem" not in described
    scenes = described["scenes"]
    step, sample = scenes["written"]["controls"]
    assert step["values"] == [1, 2, 3, 4] and step["value"] == 4  # the newest
    assert sample["values"] == list(range(1, RESPONSES + 1))
    record = own.rollout(4, sample["value"] - 1)
    assert record.tokens is not None
    arrays = record.tokens.arrays
    screens = {"written": "logprobs", "kl": "kl", "rewarded": "rewards", "credited": "advantages", "whitened": "whitened_advantages"}
    for scene, name in screens.items():
        (picture,) = scenes[scene]["shown"]["pictures"].values()
        assert shown_values(picture) == pytest.approx(arrays[name], abs=1e-5), scene
        assert not any(item["note"] for item in picture["items"]), f"{scene}: what is on record differs from itself"
    by_scene = {scene: {control["name"]: control for control in scenes[scene]["controls"]} for scene in scenes}
    assert by_scene["kl"]["estimator"]["value"] == "k3"
    assert by_scene["credited"]["gamma"]["value"] == pytest.approx(0.97)
    assert by_scene["clipped"]["eps"]["value"] == pytest.approx(0.15)
    assert by_scene["rewarded"]["beta"]["value"] == pytest.approx(record.tokens.kl_coef, abs=1e-6)  # adaptive: that of the step
    assert by_scene["rewarded"]["score"]["value"] == pytest.approx(record.score, abs=1e-5)
    assert all(control["own"] for control in (by_scene["rewarded"]["beta"], by_scene["kl"]["estimator"], by_scene["whitened"]["whitening"]))


def test_unchanged_settings_are_what_the_engine_recorded_at_any_step_and_response(root: Path, own: RunReader) -> None:
    draw = random.Random(0)
    for _ in range(12):
        step, sample = draw.randint(1, STEPS), draw.randint(1, WITH_LAST_PASS)
        tokens = own.rollout(step, sample - 1).tokens
        assert tokens is not None
        values = {"step": step, "sample": sample, "eps": None, "score": None}
        actual = asked(root, "own", "compute", "pushed", values=values)
        push = shown_values(actual["pictures"]["push"])
        arrays = tokens.arrays
        by_hand = np.where(arrays["clipped"] > 0, 0, arrays["whitened_advantages"] * arrays["ratio"])
        assert push == pytest.approx(by_hand, abs=1e-4)
        assert actual["slots"]["differs"] == "0"


def test_another_setting_shows_the_old_number_in_brackets_and_leaves_the_rest(root: Path) -> None:
    index = {"step": 3, "sample": 2, "gamma": None}
    before = asked(root, "own", "compute", "credited", values={**index, "lam": None})["pictures"]["now"]
    after = asked(root, "own", "compute", "credited", values={**index, "lam": 0.0})["pictures"]["now"]
    for old, new in zip(before["items"], after["items"], strict=True):
        changed = f"{old['value']:.2f}" != f"{new['value']:.2f}"
        assert new["note"] == (f"({old['value']:.2f})".replace("-", "−") if changed else "")
    assert any(item["note"] for item in after["items"])


def test_a_control_takes_the_nearest_that_the_run_has(root: Path) -> None:
    values = {"step": 77, "sample": 900, "beta": "k1", "score": None}
    actual = asked(root, "own", "compute", "rewarded", values=values)
    values_now = {control["name"]: control["value"] for control in actual["controls"]}
    assert (values_now["step"], values_now["sample"]) == (4, RESPONSES)
    at_step = asked(root, "own", "describe", values={"step": 2, "sample": 5})["scenes"]
    for scene in ("written", "rewarded", "pushed"):
        assert [control["value"] for control in at_step[scene]["controls"][:2]] == [2, 5]


def test_what_was_not_recorded_is_said_on_its_screen_alone(root: Path) -> None:
    values = {"step": 4, "sample": 6}
    late = asked(root, "own", "compute", "pushed", values={**values, "eps": None, "score": None})
    assert late["problem"] == "The update's last pass is on record for the responses 1 to 3 of this step alone. Choose one of them."
    assert [control["name"] for control in late["controls"]] == ["step", "sample", "eps", "score"]
    early = asked(root, "own", "compute", "credited", values={**values, "gamma": None, "lam": None})
    assert early["pictures"]["now"]["items"]
    assert asked(root, "own", "compute", "written", values=values)["slots"]["prompt"] == "@no_text"
    assert "Only the bundled run" in asked(root, "own", "describe")["scenes"]["swapped"]["shown"]["problem"]


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("no-critic", "This run has no critic (ppo.advantage: rloo): there are no values to compute with again."),
        ("waiting", "This run has no responses on record yet. Come back when its first step is done."),
        ("sft", "Only a run of PPO has rewards and advantages."),
    ],
)
def test_a_run_that_cannot_be_shown_says_why(run: str, sentence: str, root: Path) -> None:
    assert asked(root, run, "describe")["problem"] == sentence


def test_a_run_that_has_gone_on_is_read_anew(root: Path, tmp_path: Path) -> None:
    write_run(tmp_path, "going", 1)
    question = {"op": "describe", "lesson": "one_sample", "folder": str(tmp_path / "runs" / "going")}

    def steps(as_of: str) -> list[int]:
        actual: list[int] = answer({**question, "as_of": as_of})["scenes"]["written"]["controls"][0]["values"]
        return actual

    assert steps("1") == [1]
    writer = RunWriter(tmp_path / "runs" / "going")
    config = small_config(tmp_path)
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    trainer.step()
    writer.commit_step(trainer.step())
    writer.close()
    assert steps("2") == [1, 2]


def test_the_probes_of_a_run_go_through_time(root: Path, own: RunReader) -> None:
    probes, scores = own.probes()
    described = asked(root, "own", "describe", lesson="time_machine")["scenes"]
    sentence, _, step = described["map"]["controls"]
    assert sentence["values"] == list(range(1, len(probes) + 1)) and step["values"] == [0, 1, 2, 3, 4]
    rows = asked(root, "own", "compute", "map", "time_machine", values={"sentence": 2, "measure": "chance", "step": 3})["pictures"]["map"]
    by_step = {at: score for at, score in scores if score.probe == 1}
    for index, row in enumerate(rows["rows"]):
        recorded = [float(np.exp(by_step[at].logprobs[index])) for at in range(STEPS + 1)]
        assert row["cells"] == pytest.approx(recorded, abs=1e-6)
    assert rows["at"] == 3
    duel = asked(root, "own", "compute", "overtaken", "time_machine", values={"sentence": 2, "place": 1})["pictures"]["duel"]["series"]
    start = by_step[0]
    assert duel[0]["y"][0] == pytest.approx(float(np.exp(max(start.top_logprobs[0].max(), start.logprobs[0]))), abs=1e-6)
    for index in range(1, len(rows["rows"]) + 1):
        actual = asked(root, "own", "compute", "overtaken", "time_machine", values={"sentence": 2, "place": index})
        control, other, *_ = actual["pictures"]["duel"]["series"]
        assert control["y"] != other["y"], "a token is held against itself"
    assert "no probes" in asked(root, "no-critic", "describe", lesson="time_machine")["problem"]


# --- the app's side ----------------------------------------------------------------------------------------------------------------


class Listening:
    """Stands in for the process: it keeps what it is asked."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def ask(self, question: dict[str, Any]) -> Any:
        self.heard.append(question)
        if question.get("folder"):
            return answer(question)
        raise NotComputed("nothing")

    def begin(self) -> None: ...

    def rest(self) -> None: ...

    def close(self) -> None: ...


def test_the_app_finds_a_run_by_its_id_and_never_by_a_path(root: Path, own: RunReader) -> None:
    process: Any = Listening()
    page = LearnPage(process, process, Workspace(root))

    def ask(**more: Any) -> dict[str, Any]:
        question = {"op": "compute", "lesson": "one_sample", "scene": "written", "values": {"step": 2, "sample": 1}, **more}
        actual: dict[str, Any] = json.loads(bytes(page.learn_ask(question, VIEWER).body))
        return actual

    values_now = ask(run="own")["answer"]
    assert values_now == answers.computed("one_sample", "written", {"step": 2, "sample": 1}, run=answers.ChosenRun(str(own.run_dir), "x"))
    assert process.heard[-1]["folder"] == str(root / "runs" / "own")
    before = process.heard[-1]["as_of"]
    with RunWriter(own.run_dir) as writer:
        writer.set_state("finished", "")
    ask(run="own")
    assert process.heard[-1]["as_of"] != before  # so an answer from before is not taken from memory
    count = len(process.heard)
    for wrong in ("nobody", "../runs/own", str(own.run_dir), "own/../own", "x" * 101, 7, ["own"]):
        assert "error" in ask(run=wrong)
    assert ask(run="nobody")["error"].startswith("There is no")
    assert len(process.heard) == count  # none of these reached the process
    ask(folder=str(own.run_dir))
    assert "folder" not in process.heard[-1]  # what a browser says of folders is not passed on


def test_the_list_has_the_runs_of_ppo_with_episodes(root: Path) -> None:
    process: Any = Listening()
    listed = LearnPage(process, process, Workspace(root)).learn_runs({}, VIEWER)["runs"]
    assert {control["run"] for control in listed} == {"own", "no-critic"}
    assert next(control for control in listed if control["run"] == "own") == {"run": "own", "name": "own", "steps": 4, "alive": False}
    assert LearnPage(process, process).learn_runs({}, VIEWER) == {"runs": []}
