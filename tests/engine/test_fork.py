"""A fork from a checkpoint, really trained: without changes it is the original from there on, bit for bit."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config.io import config_to_yaml, with_values
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.runs.lab.fork import fork_run, forked_settings
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow

TIMES = ("time/", "memory/", "speed/")


@pytest.fixture(scope="module")
def original(small_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps with a checkpoint of each, in a workspace."""
    return Path(shutil.copytree(small_runs / "ppo", tmp_path_factory.mktemp("workspace") / "runs" / "ppo"))


def tables(run_dir: Path) -> dict[str, list[tuple]]:
    """All that is recorded of steps but when and how fast, read without our own reader."""
    with sqlite3.connect(f"{(run_dir / 'run.db').as_uri()}?mode=ro", uri=True) as connection:
        found = {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall()
            for name in ("rollouts", "token_texts", "token_arrays", "watched", "step_arrays")
        }
        found["metrics"] = [
            row
            for row in connection.execute("SELECT m.step, n.name, m.value, m.flag FROM metrics m JOIN metric_names n ON n.id = m.metric")
            if not row[1].startswith(TIMES)
        ]
    connection.close()
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def weights(run_dir: Path, step: int) -> dict[str, str]:
    folder = run_dir / "checkpoints" / f"step-{step:06d}"
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.safetensors"))}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_fork_without_changes_is_the_original(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(original)
    fork = tmp_path / "runs" / "fork"
    assert main(["fork", str(original), "--at", "2", "--run-dir", str(fork)]) == DONE
    assert everything(original) == before
    ours, theirs = tables(fork), tables(original)
    assert theirs["metrics"] and {row[0] for row in theirs["metrics"]} == {1, 2, 3}
    for name in theirs:
        assert ours[name] == theirs[name], name
    assert weights(fork, 3) == weights(original, 3) and len(weights(original, 3)) >= 4
    reader = RunReader(fork)
    assert (reader.status().state, reader.status().step, reader.origin().parent_step) == ("finished", 3, 2)
    texts = [event.text for event in reader.newest_events()]
    assert "Forked from the run ppo after step 2." in texts and "Resumed from the checkpoint of step 2." in texts
    assert not any("of step 3" in text for text in texts[: texts.index("Forked from the run ppo after step 2.")])


def test_a_fork_with_changes_goes_another_way(original: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    assert main(["fork", str(original), "--at", "2", "--run-dir", str(fork), "--ppo.kl_coef", "0.5", "--name", "stronger"]) == DONE
    reader, theirs = RunReader(fork), RunReader(original)
    before = theirs.config().ppo.kl_coef
    used = [values["objective/kl_coef"] for _, values in reader.metrics_since(0)]
    assert used == [before, before, 0.5]
    assert reader.metrics_since(0)[:2] == theirs.metrics_since(0)[:2] and weights(fork, 3) != weights(original, 3)
    assert reader.status().name == "stronger" and reader.origin().changes == {"ppo.kl_coef": 0.5}
    (event,) = (event for event in reader.newest_events() if event.kind == "setting")
    assert event.step == 2 and event.text.startswith(f"Changed after step 2: ppo.kl_coef from {before} to 0.5.")
    # A fork of the fork, from a step that both share: the lineage is one link at a time.
    again = tmp_path / "again"
    fork_run(fork, 3, again, forked_settings(fork, 3, {"ppo.steps": 5}))
    assert RunReader(again).origin().parent == "fork"


def test_what_is_counted_and_compared_goes_on_in_a_fork_that_computes_otherwise(original: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    changes = ["--ppo.batch_size", "4", "--model.dtype", "bfloat16"]
    assert main(["fork", str(original), "--at", "2", "--run-dir", str(fork), *changes]) == DONE
    assert [values["episode"] for _, values in RunReader(fork).metrics_since(0)] == [8, 16, 20]
    ours, theirs = (RunReader(run).probes() for run in (fork, original))
    assert ours[0] == theirs[0] and theirs[1][0][0] == 0
    start = {score.probe: score for step, score in theirs[1] if step == 0}
    met = 0
    for step, score in ours[1]:
        of_start = start[score.probe]
        for name in ("top_ids", "top_logprobs", "logprobs") if step == 0 else ():
            assert np.array_equal(getattr(score, name), getattr(of_start, name))
        for index, ids in enumerate(score.top_ids):  # a token that is among the likeliest of both has the same numbers in both tables
            for rank, token in enumerate(ids):
                for at in np.flatnonzero(of_start.top_ids[index] == token):
                    assert score.logprobs_of_start[index, at] == score.top_logprobs[index, rank]
                    assert score.start_logprobs[index, rank] == of_start.top_logprobs[index, at]
                    met += step == 3
    assert met > 20


def test_a_variation_begins_at_the_beginning(original: Path, tmp_path: Path) -> None:
    varied = tmp_path / "varied"
    assert main(["fork", str(original), "--run-dir", str(varied), "--ppo.steps", "1", "--engine.seed", "5"]) == DONE
    reader = RunReader(varied)
    assert (reader.status().step, reader.config().engine.seed, reader.origin().parent_step) == (1, 5, None)
    assert reader.origin().parent == "ppo" and reader.metrics_since(0) != RunReader(original).metrics_since(0)[:1]


def test_what_goes_on_from_a_run_works_in_its_folder_wherever_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_values(small_config(tmp_path), {"data.prompts": "prompts.txt", "ppo.steps": 1})
    (tmp_path / "run.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--config", "run.yaml", "--run-dir", "run"]) == DONE
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Path("mine.txt").write_text("w20 w21\n" * 8, encoding="utf-8")  # and no prompts.txt here
    started: list[tuple[Path, str]] = []

    def engine(run_dir: Path, *_: Any) -> int:
        started.append((Path.cwd(), RunReader(run_dir).config().data.prompts))
        return DONE

    monkeypatch.setattr("rlhf_studio.cli.engine.one_engine", engine)
    assert main(["resume", "../run", "--ppo.steps", "2"]) == DONE
    assert main(["fork", "../run", "--at", "1", "--run-dir", "fork", "--ppo.steps", "3"]) == DONE
    assert main(["fork", "../run", "--run-dir", "varied", "--data.prompts", "mine.txt"]) == DONE
    mine = str(elsewhere / "mine.txt")
    assert started == [(tmp_path, "prompts.txt"), (tmp_path, "prompts.txt"), (tmp_path, mine)] and Path.cwd() == elsewhere
    assert {RunReader(elsewhere / name).working_folder() for name in ("fork", "varied")} == {tmp_path}


def test_a_new_run_begins_with_the_trained_policy(original: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert main(["fork", str(original), "--from-policy", "--at", "2", "--run-dir", str(new), "--ppo.steps", "1"]) == DONE
    reader = RunReader(new)
    trained = original / "checkpoints" / "step-000002" / "policy"
    assert reader.config().model.policy == str(trained) == Workspace(original.parents[1]).trained_policy("ppo", 2)
    assert reader.origin().changes["model.policy"] == str(trained) and reader.status().step == 1
    kl = reader.metrics_since(0)[0][1]["objective/kl"]
    assert kl == pytest.approx(0, abs=1e-4)  # measured from the policy that it begins with
    assert RunReader(original).metrics_since(2)[0][1]["objective/kl"] != pytest.approx(0, abs=1e-4)  # from the untrained one


def test_adapters_take_their_base_along(tmp_path: Path) -> None:
    """With these adapters the base is changed at the start, so it lies in the run folder."""
    config = small_config(
        tmp_path,
        ppo={"steps": 2},
        lora={"enabled": True, "init_lora_weights": "pissa"},
        engine={"checkpoint_every": 1, "keep_checkpoints": 2},
    )
    (tmp_path / "run.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    run = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--run-dir", str(run)]) == DONE
    assert (run / "base").is_dir()
    want = weights(run, 2)
    fork = tmp_path / "fork"
    fork_run(run, 1, fork, forked_settings(run, 1, {}))
    shutil.rmtree(run)  # the fork stands alone
    assert main(["resume", str(fork)]) == DONE
    assert weights(fork, 2) == want


def test_bad_input_leaves_nothing(original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["--at", "2", "--engine.seed", "4"], "engine.seed: cannot change in a fork from a checkpoint: the order of the prompts"),
        (["--at", "two"], "--at: should be a checkpoint's step, 'newest', 'latest' or 'best', not 'two'"),
        (["--at", "2", "--ppo.kl_coef", "-1"], "ppo.kl_coef: input should be greater than or equal to 0, not -1"),
    ):
        assert main(["fork", str(original), "--run-dir", str(tmp_path / "new"), *arguments]) == BAD_INPUT
        assert expected in capsys.readouterr().err
    assert main(["fork", str(original), "--at", "2", "--run-dir", str(original)]) == BAD_INPUT
    assert "--run-dir:" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_finished_run_is_continued(original: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    folder = tmp_path / "runs" / "run"
    folder.parent.mkdir()
    shutil.copytree(original, folder)
    assert workspace.go_on("run", 4) == 1
    assert main(["resume", str(folder)]) == DONE  # what the app starts
    reader = RunReader(folder)
    assert (reader.status().state, reader.status().step, reader.status().total_steps) == ("finished", 4, 4)
    assert reader.metrics_since(0)[:3] == RunReader(original).metrics_since(0)
    (event,) = (event for event in reader.newest_events() if event.kind == "setting")
    assert event.text.startswith("Changed after step 3: ppo.steps from 3 to 4. The learning rate was")
