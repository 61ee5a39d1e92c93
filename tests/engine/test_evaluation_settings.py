"""Settings of an evaluation: which prompts are answered, which texts are read, and what answers when no policies are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from rlhf_studio.config import NOTHING_ALLOWED
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages.evaluating import loading, stage
from rlhf_studio.engine.stages.evaluating.prompts import NOT_HELD_OUT, learned_from, read_evaluation_prompts, read_texts
from rlhf_studio.engine.stages.evaluating.stage import ppo_settings
from rlhf_studio.exit_codes import DONE
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.evaluation.policies import PolicySource
from rlhf_studio.runs.lineage import sources
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import PROMPTS
from tests.engine.test_evaluating import answers_of, build, evaluation, plain_logprob, quiet, setup
from tests.runs.stage_helpers import write_stage_run


def test_the_first_texts_of_a_column_are_read(tmp_path: Path) -> None:
    policies = setup(tmp_path)
    (tmp_path / "texts.csv").write_text("body,text\nw1 w2,no\nw3,no\nw4,no\n")
    settings = {"text": str(tmp_path / "texts.csv"), "text_column": "body", "text_rows": 2}
    assert read_texts(evaluation(tmp_path, [policies["policy"]], evaluation=settings), quiet) == ["w1 w2", "w3"]
    with pytest.raises(PromptsError) as caught:
        read_texts(evaluation(tmp_path, [policies["policy"]], evaluation=settings | {"text_column": "words"}), quiet)
    assert (caught.value.field, caught.value.message) == (
        "evaluation.text_column",
        "there is no column 'words'; the columns are: body, text",
    )


def test_so_many_prompts_are_answered(tmp_path: Path) -> None:
    """Spread evenly over those that are held out; 0: all."""
    policy = setup(tmp_path)["policy"]
    tokenizer = AutoTokenizer.from_pretrained(policy)
    for count, expected in ((3, PROMPTS[::2]), (4, [PROMPTS[row] for row in (0, 1, 3, 4)]), (0, PROMPTS), (99, PROMPTS)):
        config = evaluation(tmp_path, [policy], evaluation={"prompts": count})
        assert read_evaluation_prompts(config, ppo_settings(config), tokenizer, quiet).texts() == expected, count


def test_prompts_that_are_held_out_themselves_need_no_warning(tmp_path: Path) -> None:
    """Those of the review world, where no compared run learned from them; all others do."""
    config = evaluation(tmp_path, [setup(tmp_path)["policy"]], evaluation={"prompts": 2})
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")

    def warned(prompts: str, trained_on: set[str]) -> bool:
        data = config.data.model_copy(update={"prompts": prompts, "column": "prompt", "max_prompts": 8})
        changed = config.model_copy(update={"data": data})
        return NOT_HELD_OUT in read_evaluation_prompts(changed, ppo_settings(changed), tokenizer, quiet, trained_on).notes

    ours = "bundled/world-prompts-heldout"
    assert not warned(ours, {resolve("bundled/world-prompts")})
    assert warned(ours, {resolve(ours)})
    assert warned("bundled/world-prompts", set())


def test_what_the_runs_of_policies_learned_from(tmp_path: Path) -> None:
    ppo = write_stage_run(tmp_path, "ppo", [{}], data={"prompts": "bundled/world-prompts"})
    sft = write_stage_run(tmp_path, "sft", [{}], data={"source": "mine.jsonl"})
    named = [PolicySource(name, "model", "somewhere", run_folder=str(run.run_dir)) for name, run in (("a", ppo), ("b", sft), ("c", ppo))]
    assert learned_from([*named, PolicySource("d", "model", "me/model")]) == {resolve("bundled/world-prompts"), "mine.jsonl"}


def test_a_run_that_learned_from_the_prompts_themselves_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage looks at what the named policies learned from."""
    config = evaluation(tmp_path, [setup(tmp_path)["policy"]], evaluation={"prompts": 2})
    data = config.data.model_copy(update={"prompts": "bundled/world-prompts-heldout", "column": "prompt", "max_prompts": 8})
    config = config.model_copy(update={"data": data})
    for prompts, expected in (("bundled/world-prompts", False), ("bundled/world-prompts-heldout", True)):
        run = write_stage_run(tmp_path, "ppo", [{}], data={"prompts": prompts})
        source = PolicySource("policy", "model", str(tmp_path / "policy"), run_folder=str(run.run_dir))
        monkeypatch.setattr(stage, "sources_of", lambda config, source=source: [source])
        _, events = stage.EvaluationStage.build(config, choose_compute(ppo_settings(config)), quiet, NOTHING_ALLOWED)
        assert any(event.text == NOT_HELD_OUT for event in events) == expected, prompts


def test_the_model_itself_answers_where_no_policies_are_named(tmp_path: Path) -> None:
    other = setup(tmp_path)["other"]
    answers = answers_of(build(evaluation(tmp_path, [], model={"policy": other})))
    assert {answer.policy for answer in answers} == {"other"} and len(answers) == 2 * len(PROMPTS)
    for answer in answers:
        expected = plain_logprob(other, answer.prompt, answer.response, False)  # the end token is no text
        assert answer.ref_logprob == pytest.approx(expected, abs=1e-3) and answer.kl == pytest.approx(0.0, abs=1e-4)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A hub with one model of two revisions, which are different models."""
    policies = setup(tmp_path)
    folders = {("lab/model", "v1"): policies["policy"], ("lab/model", "v2"): policies["other"]}

    def fetch(name: str, revision: str, *rest: Any, **more: Any) -> Path:
        return Path(folders.get((name, revision), name))

    def load(name: str, revision: str, *rest: Any) -> Any:
        return load_causal_lm(folders.get((name, revision), name), "main", *rest)

    monkeypatch.setattr(loading, "fetch", fetch)
    monkeypatch.setattr(loading, "load_causal_lm", load)
    return policies


def test_the_reference_is_loaded_at_its_revision(hub: dict[str, str], tmp_path: Path) -> None:
    settings = {"samples": 1, "prompts": 2, "reference": "lab/model", "reference_revision": "v2"}
    for answer in answers_of(build(evaluation(tmp_path, [hub["policy"]], evaluation=settings))):
        expected = plain_logprob(hub["other"], answer.prompt, answer.response, False)
        assert answer.ref_logprob == pytest.approx(expected, abs=1e-3)


def test_two_revisions_of_one_model_are_two_policies(hub: dict[str, str], tmp_path: Path) -> None:
    settings = {"samples": 1, "prompts": 3}
    by_name, by_folder = (
        answers_of(build(evaluation(tmp_path, lines, evaluation=settings)))
        for lines in (["lab/model@v1", "lab/model@v2"], [hub["policy"], hub["other"]])
    )
    assert [answer.response for answer in by_name] == [answer.response for answer in by_folder]
    assert len({answer.response for answer in by_name}) > 3


def test_what_an_evaluation_was_made_from_is_on_record(tmp_path: Path) -> None:
    """Also when it was stopped while it loaded: it then begins at step 0 when it is resumed."""
    policies = setup(tmp_path)
    settings = {"samples": 1, "prompts": 1, "judge": str(tmp_path / "reward")}
    for name, mode in (("straight", "train"), ("stopped", "resume")):
        config = evaluation(tmp_path, [policies["policy"], policies["other"]], evaluation=settings)
        create_run(tmp_path / name, config, name=name)
        assert run_engine(tmp_path / name, mode) == DONE
        answers = sources(RunReader(tmp_path / name), hash_of, bundled_path)
        assert [(one.setting, one.name, one.standing) for one in answers if one.setting.startswith("evaluation.")] == [
            ("evaluation.policies", "policy", "as it was"),
            ("evaluation.policies", "other", "as it was"),
            ("evaluation.judge", str(tmp_path / "reward"), "as it was"),
        ]
