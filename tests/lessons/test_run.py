"""The lesson run is a run that learned, and its policies are those that sampled."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from statistics import fmean

import pytest
import torch

from rlhf_studio.config.bundled import ADAPTERS, LESSON_RUN, RECORDED
from rlhf_studio.lessons import answers
from rlhf_studio.lessons.run import LessonRun, unpacked
from rlhf_studio.lessons.world_build.lesson_run import build_lesson_run
from rlhf_studio.runs.finding.unpack import DamagedBundle

MOST_BYTES = 7_000_000


def test_it_is_small_and_loaded_once(run: LessonRun) -> None:
    assert LESSON_RUN.stat().st_size <= MOST_BYTES
    assert answers.LOADERS["run"](answers.BUNDLED) is run


def test_it_has_learned_and_without_the_kl_it_has_learned_to_please(run: LessonRun) -> None:
    gold, score = run.curve("gold/score"), run.curve("objective/scores")
    assert len(gold) == run.steps
    assert fmean(gold[-3:]) > gold[0] + 0.5
    assert fmean(score[-3:]) > score[0] + 1
    assert fmean(run.curve("objective/scores", without_kl=True)[-3:]) > fmean(score[-3:])
    assert fmean(run.curve("gold/score", without_kl=True)[-3:]) < -0.2


@pytest.mark.parametrize("step", [1, 36])
def test_the_policy_of_a_step_is_the_one_that_sampled(run: LessonRun, step: int) -> None:
    samples, of = run.samples(step), run.recorded(step)
    tokens = run.batch([sample.prompt_ids for sample in samples], [sample.ids for sample in samples])
    assert torch.equal(tokens.mask, of.mask)
    read = run.read(step - 1, tokens)
    for mine, recorded in ((read.logprobs, of.logprobs), (read.values, of.values), (run.read_reference(tokens), of.ref_logprobs)):
        assert (mine - recorded)[of.mask].abs().max() < 1e-4
    scores, gold = run.score([sample.prompt for sample in samples], [sample.response for sample in samples])
    for sample, score, true in zip(samples, scores, gold, strict=True):
        assert score == pytest.approx(sample.score, abs=1e-4)
        assert true == pytest.approx(sample.gold, abs=1e-6)


def test_the_start_is_the_reference_and_distributions_are_those_of_the_tokens(run: LessonRun) -> None:
    sample = run.samples(9)[0]
    tokens = run.batch([sample.prompt_ids], [sample.ids])
    assert (run.read(0, tokens).logprobs - run.read_reference(tokens)).abs().max() < 1e-5
    whole = run.distributions(8, tokens)
    assert whole.exp().sum(dim=-1).sub(1).abs().max() < 1e-4
    of_tokens = whole[torch.arange(len(sample.ids)), torch.tensor(sample.ids)]
    assert (of_tokens - run.recorded(9).logprobs[0, : len(sample.ids)]).abs().max() < 1e-4
    assert run.policy(8) is not run.policy(0)
    with pytest.raises(ValueError, match="0 to 36"):
        run.policy(37)


def test_unpacking_is_done_once_and_damage_is_noticed(tmp_path: Path) -> None:
    folder = unpacked(LESSON_RUN, tmp_path)
    made = (folder / ADAPTERS).stat().st_ino
    assert unpacked(LESSON_RUN, tmp_path) == folder
    assert (folder / ADAPTERS).stat().st_ino == made
    (folder / ADAPTERS).write_bytes(b"other")
    assert unpacked(LESSON_RUN, tmp_path) == folder
    assert (folder / ADAPTERS).stat().st_size > 1_000_000
    (folder / RECORDED / "run.db").unlink()
    (folder / "manifest.json").write_text('{"sha256": {}}')  # the folder's own word counts for nothing
    assert (unpacked(LESSON_RUN, tmp_path) / RECORDED / "run.db").is_file()


def test_an_archive_whose_files_are_not_those_that_were_packed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(LESSON_RUN) as files, zipfile.ZipFile(other, "w") as copy:
        for name in files.namelist():
            copy.writestr(name, b"other" if name == ADAPTERS else files.read(name))
    with pytest.raises(DamagedBundle, match="another hash"):
        unpacked(other, tmp_path)
    (tmp_path / "no.zip").write_bytes(b"no archive")
    with pytest.raises(DamagedBundle, match="damaged"):
        unpacked(tmp_path / "no.zip", tmp_path)


@pytest.mark.long
def test_the_same_bytes_come_out_again(tmp_path: Path) -> None:
    messages: list[str] = []
    for name in ("first.zip", "second.zip"):
        build_lesson_run(tmp_path / name, messages.append, steps=2)
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    short = LessonRun(unpacked(tmp_path / "first.zip", tmp_path / "cache"))
    assert short.steps == 2
    assert short.reader.config().model_dump()["engine"]["threads"] == 1
    assert all(math.isfinite(value) for value in short.curve("objective/kl"))
    assert (unpacked(tmp_path / "first.zip", tmp_path / "cache") / RECORDED).is_dir()
