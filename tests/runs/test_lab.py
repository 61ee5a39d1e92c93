"""Sweeps, marks, the order of the queue, the setting that a failed run blames, and what is suggested after a run."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig, Stage
from rlhf_studio.config.io import ConfigError, parse_config, with_values
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.runs import studio
from rlhf_studio.runs import workspace as workspace_module
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.failures import failed_field
from rlhf_studio.runs.lab.names import run_name
from rlhf_studio.runs.lab.suggestions import Suggestion, suggestions
from rlhf_studio.runs.lab.sweeps import sweep_configs
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Marks, Origin, RunStatus
from rlhf_studio.runs.workspace import Workspace
from tests.runs.store_helpers import config

WORLD = load_recipe("world").config
NOWHERE = Origin()
VERDICTS = (
    "too early",
    "improving",
    "improved",
    "exploiting the reward",
    "collapsed",
    "nothing learned",
    "cannot tell yet",
    "cannot be told",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


# --- sweeps --------------------------------------------------------------------------------------------------------------------


def test_a_sweep_is_queued_with_a_run_for_each_combination(workspace: Workspace) -> None:
    axes = {"ppo.kl_coef": [0.1, 0, 0.05], "engine.seed": [0, 1]}
    parent = workspace.submit(WORLD, "parent")
    made = workspace.submit_sweep(WORLD, axes, "β and seeds", estimate=lambda own: (own.engine.seed + 1, 9), parent=parent)
    assert [workspace.queue_position(run_id) for run_id in made] == [2, 3, 4, 5, 6, 7]
    want = list(itertools.product([0.1, 0, 0.05], [0, 1]))
    readers = [workspace.reader(run_id) for run_id in made]
    assert [(reader.config().ppo.kl_coef, reader.config().engine.seed) for reader in readers] == want
    # nothing else differs from the configuration that was varied
    for reader, (beta, seed) in zip(readers, want, strict=True):
        assert reader.config() == with_values(WORLD, {"ppo.kl_coef": beta, "engine.seed": seed})
        origin = reader.origin()
        assert origin.changes == {"ppo.kl_coef": beta, "engine.seed": seed} and origin.parent == parent and origin.parent_step is None
    names = [workspace.status(run_id).name for run_id in made]
    assert names[0] == "β and seeds, KL coefficient 0.1, Seed 0" and len(set(names)) == 6
    assert len({reader.origin().sweep for reader in readers}) == 1


WRONG_SWEEPS: list[tuple[dict[str, Any], str]] = [
    ({}, "a sweep varies one or two settings, not 0"),
    ({"ppo.kl_coef": [0], "engine.seed": [1], "ppo.steps": [2]}, "one or two settings, not 3"),
    ({"engine.seed": list(range(21))}, "engine.seed: a sweep has 2 to 20 runs; these values make 21"),
    ({"engine.seed": [0, 1, 2, 3, 4], "ppo.kl_coef": [0, 1, 2, 3, 4]}, "these values make 25"),
    ({"engine.seed": [3]}, "these values make 1"),
    ({"engine.seed": [1], "ppo.kl_coef": []}, "these values make 0"),
    ({"engine.seed": [1, 2, 1]}, "engine.seed: the same value stands here twice; keep one"),
    ({"ppo.kl_coef": [0, 0.0]}, "are the same run; leave one out"),
    ({"ppo.kl_coef": [0.1, -1]}, "ppo.kl_coef: "),
    ({"ppo.kl_coef": [0.1, "x"]}, "ppo.kl_coef: "),
    ({"ppo.kl_cof": [0.1, 1]}, "ppo.kl_cof: .*did you mean ppo.kl_coef"),
    ({"name": ["a", "b"]}, "name: a sweep names its runs itself"),
    ({"ppo.batch_size": [64, 63]}, "mini_batch_size"),
]


def test_a_sweep_that_is_wrong_makes_nothing(workspace: Workspace) -> None:
    for axes, words in WRONG_SWEEPS:
        with pytest.raises(ConfigError, match=words):
            workspace.submit_sweep(WORLD, axes, "sweep")
    assert not workspace.root.exists()


def test_every_wrong_value_is_named_once() -> None:
    with pytest.raises(ConfigError) as caught:
        sweep_configs(WORLD, {"ppo.kl_coef": [-1, 0.1, -2], "engine.seed": [0, 1, -5]})
    fields = sorted((problem.field, problem.message.rsplit(" ", 1)[-1]) for problem in caught.value.problems)
    assert fields == [("engine.seed", "-5"), ("ppo.kl_coef", "-1"), ("ppo.kl_coef", "-2")]


def test_a_sweep_of_a_run_keeps_its_working_folder(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path in the settings means the same file, wherever the app was started; a sweep of no run has the app's folder."""
    for name in ("projects", "app"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "projects")
    parent = workspace.submit(WORLD, "parent")
    monkeypatch.chdir(tmp_path / "app")
    assert sweep_folders(workspace, parent) == [tmp_path / "projects"] * 2
    assert sweep_folders(workspace, "") == [tmp_path / "app"] * 2


def sweep_folders(workspace: Workspace, parent: str) -> list[Path]:
    made = workspace.submit_sweep(WORLD, {"engine.seed": [1, 2]}, parent=parent)
    return [workspace.reader(run_id).working_folder() for run_id in made]


def test_a_sweep_of_a_run_that_is_gone_makes_nothing(workspace: Workspace) -> None:
    run_id = workspace.submit(WORLD, "kept")
    with pytest.raises(StoreError, match="There is no run"):
        workspace.submit_sweep(WORLD, {"engine.seed": [1, 2]}, parent="20200101-000000-abcdef")
    assert [run.run_id for run in workspace.runs()] == [run_id]


@pytest.mark.parametrize("where", ["create_run", "append"])
def test_a_sweep_is_queued_whole_or_not_at_all(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    run_id = workspace.submit(WORLD)
    real, calls = getattr(workspace_module if where == "create_run" else studio, where), itertools.count(1)

    def fails_at_the_third(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) == 3:
            raise StoreError("The disk is full") if where == "create_run" else sqlite3.OperationalError("database or disk is full")
        return real(*arguments, **keywords)

    monkeypatch.setattr(workspace_module if where == "create_run" else studio, where, fails_at_the_third)
    with pytest.raises(StoreError, match="disk is full"):
        workspace.submit_sweep(WORLD, {"engine.seed": [1, 2, 3, 4]}, "sweep")
    assert [run.run_id for run in workspace.runs()] == [run_id] == [entry.run_id for entry in studio.read(workspace.root).waiting()]
    assert [path.name for path in (workspace.root / "runs").iterdir()] == [run_id]


def test_names_of_a_sweeps_runs_stay_short() -> None:
    assert run_name("", {"engine.seed": 3}) == "Seed 3"
    assert len(run_name("n" * 120, {"model.policy": "p" * 500})) <= 120
    assert run_name("n" * 120, {"engine.seed": 3}).endswith(", Seed 3")


# --- marks ---------------------------------------------------------------------------------------------------------------------


def test_marks(workspace: Workspace) -> None:
    run_id, other = workspace.submit(config(), "a run"), workspace.submit(config(), "other")
    database = (workspace.run_dir(run_id) / "run.db").read_bytes()
    assert workspace.status(run_id).marks == Marks()
    workspace.mark(run_id, tags=[" good ", "β", "good", ""], note="two\nlines <b>")
    workspace.mark(run_id, archived=True)
    want = Marks(("good", "β"), "two\nlines <b>", True)
    assert workspace.status(run_id).marks == RunReader(workspace.run_dir(run_id)).status().marks == want
    assert {run.run_id: run.marks for run in workspace.runs()} == {run_id: want, other: Marks()}
    workspace.mark(run_id, tags=[], note="")
    assert workspace.status(run_id).marks == Marks(archived=True)
    for marks, words in (
        ({"tags": [str(number) for number in range(21)]}, "at most 20 tags, not 21"),
        ({"tags": ["x" * 41]}, "a tag has at most 40 characters, not 41"),
        ({"note": "x" * 4001}, "at most 4,000 characters, not 4,001"),
    ):
        with pytest.raises(ValueError, match=words):
            workspace.mark(run_id, **marks)
    assert workspace.status(run_id).marks == Marks(archived=True)
    with pytest.raises(StoreError, match="no run"):
        workspace.mark("no-such-run", note="x")
    assert (workspace.run_dir(run_id) / "run.db").read_bytes() == database
    workspace.delete(run_id)
    with sqlite3.connect(workspace.root / "studio.db") as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (0,)
    connection.close()


def test_a_queue_of_an_earlier_version_has_no_marks(workspace: Workspace) -> None:
    run_id = workspace.submit(config(), "a run")
    with sqlite3.connect(workspace.root / "studio.db") as connection:
        connection.execute("DROP TABLE marks")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert workspace.status(run_id).marks == Marks() and workspace.queue_position(run_id) == 1
    workspace.mark(run_id, note="new")
    assert workspace.status(run_id).marks.note == "new" and workspace.queue_position(run_id) == 1


# --- the queue's order -----------------------------------------------------------------------------------------------------------


def test_moving_in_the_queue(workspace: Workspace) -> None:
    gone = workspace.submit(config())
    order = [workspace.submit(config()) for _ in range(4)]
    workspace.cancel(gone)
    for moved, to, expected in ((3, 1, [3, 0, 1, 2]), (0, 3, [1, 2, 0, 3]), (1, 99, [0, 2, 3, 1]), (2, 3, [0, 1, 2, 3])):
        workspace.move(order[moved], to)
        order = [order[index] for index in expected]
        assert [entry.run_id for entry in studio.read(workspace.root).waiting()] == order, (moved, to)
    assert workspace.queue_position(workspace.submit(config())) == 5  # what comes later still waits behind


def test_only_what_waits_can_be_moved(workspace: Workspace) -> None:
    run_id = workspace.submit(config())
    with pytest.raises(ValueError, match="1 or more, not 0"):
        workspace.move(run_id, 0)
    workspace.cancel(run_id)
    for name in (run_id, "no-such-run"):
        with pytest.raises(StoreError, match="is not waiting in the queue"):
            workspace.move(name, 1)


# --- the setting that a failed run blames ------------------------------------------------------------------------------------------


def failed(cause: str, state: str = "failed", stage: Stage = "ppo") -> RunStatus:
    return RunStatus(run_id="r", name="r", created_at=0.0, state=state, cause=cause, stage=stage)  # type: ignore[arg-type]


def test_the_field_of_real_errors() -> None:
    for data, field in (
        ({"ppo": {"learning_rate": 7.0}}, "ppo.learning_rate"),
        ({"ppo": {"batch_size": 63}}, "ppo.mini_batch_size"),
        ({"reward": {"components": [{"kind": "length", "weight": "x"}]}}, "reward.components.0.weight"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_config(data)
        assert failed_field(failed(str(caught.value))) == field
        early = f"The engine ended before it could begin (exit code 2). The last line of its log: rlhf-studio: {caught.value}"
        assert failed_field(failed(early)) == field
    assert failed_field(failed(str(PromptsError("data.column", "there is no column 'x'")))) == "data.column"


CAUSES = [
    ("the GPU ran out of memory (x). Use a smaller ppo.micro_batch_size, generation.batch_size", "ppo.micro_batch_size"),
    ("the loss is not finite in minibatch 3. The checkpoint of step 4 is intact: mend the cause and resume", "ppo.learning_rate"),
    ("reward component sentiment: no answer", "reward.components"),
    ("The engine was killed (SIGKILL), often by the system because memory ran out.", "ppo.micro_batch_size"),
    ("KeyError: 'x'. The full trace is in engine.log", ""),
    ("/data/my.file.db is damaged", ""),
    ("", ""),
]


def test_the_field_of_other_causes() -> None:
    assert [failed_field(failed(cause)) for cause, _ in CAUSES] == [field for _, field in CAUSES]
    assert {failed_field(failed(cause, "finished")) for cause, _ in CAUSES} == {""}


def test_a_stage_is_blamed_for_its_own_settings() -> None:
    loss, memory = "the loss is not finite", "The engine was killed (SIGKILL), often by the system because memory ran out."
    for stage in ("sft", "reward_model", "dpo"):
        assert failed_field(failed(loss, stage=stage)) == f"{stage}.learning_rate"  # type: ignore[arg-type]
        assert failed_field(failed(memory, stage=stage)) == f"{stage}.micro_batch_size"  # type: ignore[arg-type]
    assert failed_field(failed(memory, stage="evaluation")) == ""
    assert failed_field(failed("data.source: there is no such file", stage="sft")) == "data.source"
    assert failed_field(failed("data.prompts: there is no such file", stage="sft")) == ""


# --- suggestions -------------------------------------------------------------------------------------------------------------------


def titles(config: RunConfig, verdict: str, origin: Origin = NOWHERE, gold: bool = True) -> list[str]:
    return [suggestion.title for suggestion in suggestions(config, origin, verdict, gold)]


def test_no_advice_that_makes_no_sense() -> None:
    free = with_values(WORLD, {"ppo.kl_coef": 0.0})
    for verdict in VERDICTS:
        assert not any("without the KL" in title or title == "Five KL coefficients" for title in titles(free, verdict))
    assert titles(free, "exploiting the reward")[0] == "Again with a stronger KL penalty, β 0.1"
    assert titles(WORLD, "collapsed")[0] == "Again with half the learning rate" and "Three more seeds" not in titles(WORLD, "collapsed")
    adaptive = with_values(WORLD, {"ppo.kl_controller": "adaptive"})
    assert "Again with a smaller KL target, 3 nats" in titles(adaptive, "exploiting the reward")
    assert titles(WORLD, "improved")[0] == "Again without the KL penalty: watch the judge be fooled"
    assert "fooled" not in titles(WORLD, "improved", gold=False)[0]  # nobody would see it
    held, rate = WORLD.ppo.learning_rate, {"ppo.learning_rate": 3 * WORLD.ppo.learning_rate}
    cured = suggestions(WORLD, NOWHERE, "nothing learned", True, rate)
    assert cured[0].title == f"Again with learning rate {3 * held}" and [idea.changes for idea in cured].count(rate) == 1
    far = with_values(WORLD, {"ppo.learning_rate": 0.9})
    mended = suggestions(far, NOWHERE, "collapsed", True, {"ppo.learning_rate": held})
    assert (mended[0].title, mended[0].purpose) == (f"Again with learning rate {held}", "repair")
    assert [idea for idea in mended if "ppo.learning_rate" in idea.changes] == mended[:1]  # half of 0.9 breaks it again
    assert suggestions(WORLD, NOWHERE, "collapsed", True, {"ppo.kl_coef": 0.1})[0].title == "Again with KL coefficient 0.1"
    purposes = [suggestions(WORLD, NOWHERE, verdict, True)[0].purpose for verdict in ("improved", "collapsed", "exploiting the reward")]
    assert purposes == ["experiment", "repair", "repair"]
    assert titles(WORLD, "too early") == titles(WORLD, "improving") == []
    assert titles(WORLD, "improved", Origin(imported="log.jsonl")) == []
    assert "Three more seeds" not in titles(WORLD, "improved", Origin(sweep="s", changes={"engine.seed": 1}))
    assert "The same with LoRA" not in titles(WORLD, "improved", Origin("parent", None, {"lora.enabled": False}))


def test_each_suggestion_is_one_click(workspace: Workspace) -> None:
    """Every suggestion for every recipe is taken by the method that its button calls."""
    for recipe in list_recipes("ppo"):
        base = load_recipe(recipe.name).config
        parent = workspace.submit(base, "parent")
        for verdict in VERDICTS:
            offered, case = suggestions(base, Origin(), verdict, base.reward.gold != "none"), (recipe.name, verdict)
            assert len({suggestion.title for suggestion in offered}) == len(offered) <= 5, case
            assert bool(offered) == (verdict not in ("too early", "improving")), case
            for suggestion in offered:
                assert suggestion.title and suggestion.why.endswith(".") and bool(suggestion.sweep) != bool(suggestion.changes), case
                assert start(workspace, parent, base, suggestion), case


def start(workspace: Workspace, parent: str, base: RunConfig, suggestion: Suggestion) -> bool:
    if suggestion.how == "sweep":
        return len(sweep_configs(base, suggestion.sweep)) > 1
    if suggestion.how == "more steps":
        return list(suggestion.changes) == ["ppo.steps"] and suggestion.changes["ppo.steps"] > base.ppo.steps
    return workspace.fork_settings(parent, None, suggestion.changes) != base
