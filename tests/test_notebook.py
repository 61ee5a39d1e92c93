"""A run in a notebook: frames that hold what the store holds, the charts of the Live page, a picture that is safe."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.attach import Studio
from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import COLLAPSED_RUN
from rlhf_studio.notebook import OpenRun, open_run
from rlhf_studio.notebook.figures import colours
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.live.charts import page_data
from tests.engine.conftest import small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    """A recorded run that collapsed; the program brings it."""
    folder = tmp_path_factory.mktemp("recording")
    with zipfile.ZipFile(COLLAPSED_RUN) as files:
        files.extractall(folder)
    return open_run(folder / "collapsed")


def test_metrics_are_those_of_the_store(run: OpenRun) -> None:
    frame = run.metrics
    stored = run.reader.metrics_since(0, limit=10_000)
    assert frame.index.tolist() == [step for step, _ in stored]
    for step, values in stored:
        for name, value in values.items():
            assert value is None or frame.loc[step, name] == value
    assert frame.notna().to_numpy().sum() == sum(value is not None for _, values in stored for value in values.values())


def test_responses_and_their_tokens(run: OpenRun) -> None:
    every = run.rollouts()
    one = run.rollouts(3)
    assert sorted(every["step"].unique()) == run.reader.rollout_steps() and (one["step"] == 3).all()
    stored = run.reader.rollout(3, 1)
    row = one.set_index("sample").loc[1]
    assert (row["prompt"], row["response"], row["score"]) == (stored.prompt, stored.response, stored.score)
    tokens = run.tokens(3, 1)
    assert stored.tokens is not None and len(tokens) == stored.length
    assert "".join(tokens["token"]).startswith(stored.response) and tokens.attrs["prompt"] == stored.prompt
    np.testing.assert_array_equal(tokens["advantages"], stored.tokens.arrays["advantages"])
    assert (tokens["logprobs"] - tokens["ref_logprobs"]).sum() == pytest.approx(stored.kl, abs=1e-3)
    assert run.rollouts(99_999).empty and "prompt" in run.rollouts(99_999).columns
    with pytest.raises(StoreError, match="no recorded response 999"):
        run.tokens(3, 999)


def test_every_chart_of_the_live_page_is_a_figure(run: OpenRun) -> None:
    """Which lines, on which side, in which colour: as the page's scripts are told."""
    metrics, figures = run.metrics, run.figures()
    one_axis = {"score", "frontier"}  # the recording's score and gold are points of one scale
    assert figures["score"]["layout"]["yaxis"]["title"]["text"] == "points" and len(figures["score"]["data"]) == 2
    known = {name for name in metrics if metrics[name].notna().any()}
    for chart in page_data()["charts"]:
        lines = [line for line in chart["lines"] if line["metric"] in known] if "ppo" in chart["stages"] else []
        assert bool(lines) == (chart["key"] in figures), chart["key"]
        if not lines:
            continue
        drawn = figures[chart["key"]]["data"]
        for line, trace in zip(lines, drawn, strict=False):
            factor = 100 if line["percent"] else 1
            values = metrics[line["metric"]] * factor
            np.testing.assert_allclose(trace["y"], values.dropna() if line["style"] == "sparse" else values, err_msg=chart["key"])
            assert trace["line"]["color"] == colours()[line["colour"]].lower()
            assert trace["yaxis"] == ("y2" if line["axis"] == "right" and chart["key"] not in one_axis else "y")
    assert set(run.charts) == set(figures) and run.charts["kl"] == "KL and coefficient"
    np.testing.assert_allclose(run.figure("kl", x="episode")["data"][0]["x"], metrics["episode"])
    np.testing.assert_allclose(run.figure("frontier")["data"][0]["x"], metrics["objective/kl"])
    for wrong, error in ((("no-chart", "step"), KeyError), (("kl", "time"), KeyError), (("kl", "hours"), ValueError)):
        with pytest.raises(error):
            run.figure(*wrong)  # type: ignore[arg-type]


def test_the_diagnosis_names_what_the_recording_was_made_with(run: OpenRun) -> None:
    """It was made to collapse, at 20 times the learning rate of its recipe; its last responses are of one token."""
    diagnosis, frame = run.diagnosis, run.metrics
    findings = {finding.check: finding for finding in diagnosis.findings}
    assert diagnosis.verdict.kind == "collapsed" and diagnosis.step == frame.index[-1]
    assert isinstance(run.config, RunConfig) and run.config.ppo.learning_rate == 0.04
    assert findings["settings-learning-rate"].changes == {"ppo.learning_rate": 0.002}
    at_once, lengths = findings["ends-at-once"], frame["tokens/response_length"]
    assert at_once.until is None and (lengths.loc[at_once.since :] < 3).all()
    assert at_once.evidence[0].text.startswith(f"{lengths.loc[at_once.since]:.2f} tokens")


def test_its_picture_is_small_and_safe(run: OpenRun, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    folder = tmp_path / "other"
    create_run(folder, small_config(tmp_path), name="<script>alert(1)</script>", state="loading")
    with RunWriter(folder):
        pass
    other = open_run(folder)
    assert "<script>" not in other._repr_html_() and "&lt;script&gt;" in other._repr_html_()
    assert len(run._repr_html_()) < 4000 and run.diagnosis.verdict.sentence.split()[0] in run._repr_html_()
    assert other.metrics.empty and other.rollouts().empty and other.figures() == {}
    assert "step 0" in repr(other)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path, "nowhere"):
        with pytest.raises(StoreError):
            open_run(folder)


def test_a_run_of_the_workspace_is_opened_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of what another trainer gives, only what it gave: the pages' copy of its advantages is none of it."""
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path))
    with Studio() as studio:
        studio.step(response_tokens=[["x", "y"]], advantages=[[0.5, -0.5]])
        folder = studio.run_dir
    assert folder is not None
    run = open_run(folder.name)
    assert run.folder == folder and list(run.tokens(1)) == ["token", "id", "advantages"]


@pytest.mark.slow
def test_it_needs_neither_torch_nor_gradio() -> None:
    code = "import sys, rlhf_studio.notebook; print(sorted({'torch', 'gradio', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.strip() == "[]"
