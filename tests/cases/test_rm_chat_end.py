"""A reward model that was trained on chats reads in PPO, and everywhere else, the text that it was trained on, or is refused."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from rlhf_studio.config import RewardConfig
from rlhf_studio.config.io import ConfigError, parse_config, parse_ppo
from rlhf_studio.engine.compute.device import Compute, choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.rewards.scorer import Episodes, RewardError, Scorer, build_scorer
from rlhf_studio.engine.stages.evaluating.labelling import label_by_model
from rlhf_studio.inputs.models.reward_models import read_reward_file
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.jobs.export.card import _scoring
from rlhf_studio.jobs.scoring.look import ProbedResponse, look
from tests.cases.chat_judge import END, PlainScores, answers_of, chat_of, ppo_settings

CPU = Compute(torch.device("cpu"), torch.float32)


def silent(text: str, fraction: float | None) -> None:
    return None


def scorer_of(folder: Path, **settings: Any) -> Scorer:
    components = [{"kind": "reward_model", "model": str(folder), **settings}]
    return build_scorer(RewardConfig.model_validate({"components": components}), CPU, silent)


def written(folder: Path, place: int) -> str:
    return AutoTokenizer.from_pretrained(folder).apply_chat_template(chat_of(place), tokenize=False, add_generation_prompt=True)


@pytest.fixture
def changed_judge(chat_judge: Path, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A copy in which the record, or the chat template, is another one."""

    def change(template: str = "", **record: Any) -> Path:
        folder = tmp_path / f"judge-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(chat_judge, folder)
        result = json.loads((folder / "reward_model.json").read_text())
        result["trained_on"] = {**result["trained_on"], **record} if record else result["trained_on"]
        (folder / "reward_model.json").write_text(json.dumps(result))
        if template:
            (folder / "chat_template.jinja").write_text(template)
        return folder

    yield change


def test_what_it_was_trained_on_is_kept_with_it(chat_judge: Path) -> None:
    saved = read_reward_file(chat_judge)
    assert saved is not None and saved.trained_on is not None
    form = saved.trained_on
    assert (form.chat_template, form.end, form.end_id, form.special_tokens) == (True, END, None, False)
    assert form.opens(written(chat_judge, 3)) and not form.opens("what is the capital of France 3?")


def test_the_text_that_ppo_scores_is_the_one_that_was_trained(chat_judge: Path) -> None:
    """Also behind an answer that was cut off. The better answer of forty pairs scores higher: it was 20, which is chance."""
    plain, places = PlainScores(chat_judge), range(40)
    prompts = [written(chat_judge, place) for place in places for _ in range(2)]
    answers = [answer for place in places for answer in answers_of(place)]
    messages = [chat_of(place) for place in places for _ in range(2)]
    stopped = [bool(row % 3) for row in range(80)]
    scores = scorer_of(chat_judge)(Episodes(prompts, answers, stopped, [8] * 80, None, messages)).raw.tolist()
    assert scores == pytest.approx([plain(prompt + answer + END) for prompt, answer in zip(prompts, answers, strict=True)], abs=1e-4)
    assert sum(good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True)) >= 38


def test_scores_on_record_of_a_ppo_run(chat_model: Callable[[str], Path], chat_judge: Path) -> None:
    config = parse_ppo(ppo_settings(chat_model("chatml"), chat_judge))
    trainer, _ = build_trainer(config, choose_compute(config), silent)
    plain, rows = PlainScores(chat_judge), trainer.step().rollouts
    assert len(rows) == 8
    assert [row.score for row in rows] == pytest.approx([plain(row.prompt + row.response + END) for row in rows], abs=1e-4)


def test_every_other_reader(chat_judge: Path) -> None:
    """The playground takes the prompt as what the user says; ``label`` has the prompts as a policy read them."""
    plain, (good, bad) = PlainScores(chat_judge), answers_of(3)
    prompt = written(chat_judge, 3)
    scorer = scorer_of(chat_judge).components[0].models[0]
    result = look(scorer, ProbedResponse("what is the capital of France 3?", good))
    assert result["score"] == pytest.approx(plain(prompt + good + END), abs=1e-4)
    assert "".join(result["pieces"][result["first"] :]).startswith(good)
    [pair] = label_by_model({prompt: [bad, good]}, str(chat_judge), CPU, silent).pairs
    assert (pair.chosen, pair.margin) == (good, pytest.approx(plain(prompt + good + END) - plain(prompt + bad + END), abs=1e-4))
    with pytest.raises(RewardError, match="data.chat_template"):
        label_by_model({"what is the capital of France 3?": [bad, good]}, str(chat_judge), CPU, silent)


def test_the_code_on_its_card(chat_judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = read_reward_file(chat_judge)
    assert saved is not None
    (tmp_path / "score.py").write_text(_scoring(repr(str(chat_judge)), saved))
    runpy.run_path(str(tmp_path / "score.py"))
    plain = PlainScores(chat_judge)
    text = f"<|im_start|>user\nYour prompt{END}<|im_start|>assistant\nThe response{END}"
    assert float(capsys.readouterr().out.splitlines()[-1]) == pytest.approx(plain(text) - plain.bias, abs=1e-4)


def test_an_end_token_that_the_template_writes_already(chat_model: Callable[[str], Path], tmp_path: Path) -> None:
    """A note says that appending it changes nothing; behind chatml's line break it does."""
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "Good?", "chosen": " yes", "rejected": " no"}\n' * 3)
    for kind, chat, said in (("llama3", True, 1), ("llama3", False, 0), ("chatml", True, 0)):
        data = {"source": str(tmp_path / "pairs.jsonl"), "chat_template": chat, "eval_share": 0}
        settings = {"model": {"policy": str(chat_model(kind))}, "data": data, "reward_model": {"append_eos": True}}
        notes = inspect_run(parse_config({"stage": "reward_model", **settings}), tmp_path).notes
        assert sum(note.startswith("reward_model.append_eos") for note in notes) == said


def test_a_form_that_it_was_not_trained_on_is_refused_at_the_door(
    chat_model: Callable[[str], Path], chat_judge: Path, changed_judge: Callable[..., Path], tmp_path: Path
) -> None:
    """By preflight, and by the engine where it can know."""
    (tmp_path / "plain.txt").write_text("what is the capital of France?\n" * 9)
    (tmp_path / "written.jsonl").write_text("".join(json.dumps({"prompt": written(chat_judge, place)}) + "\n" for place in range(9)))
    texts = {"prompts": str(tmp_path / "plain.txt"), "chat_template": False}
    own, place = {"chat_template": "own"}, "reward.components.0"
    other = changed_judge("{% for m in messages %}{{ m['role'] + m['content'] + '\\n' }}{% endfor %}")
    plain = changed_judge(chat_template=False)
    rows: list[tuple[Path, dict[str, Any], dict[str, Any], list[str]]] = [
        (chat_judge, {}, {}, []),
        (chat_judge, own, texts, []),
        (chat_judge, {}, {**texts, "prompts": str(tmp_path / "written.jsonl")}, []),
        (chat_judge, {}, texts, [f"{place}.chat_template"]),
        (chat_judge, {"chat_template": "policy"}, {}, [f"{place}.chat_template"]),
        (chat_judge, {"reads": "response"}, {}, [f"{place}.reads"]),
        (other, {}, {}, [f"{place}.chat_template"]),
        (plain, {}, texts, []),
        (plain, own, {}, [f"{place}.chat_template"]),
    ]
    for judge, component, data, wanted in rows:
        settings = ppo_settings(chat_model("chatml"), chat_judge, **{**component, "model": str(judge)})
        settings["data"] |= data
        found = inspect_run(parse_ppo(settings), tmp_path).problems
        assert [problem.field for problem in found] == wanted, (judge.name, component, data, found)
        if wanted and not data:
            with pytest.raises(ConfigError) as refused:
                scorer_of(judge, **component)
            assert [problem.field for problem in refused.value.problems] == wanted


def test_a_model_without_the_record_reads_the_policys_text(chat_judge: Path, tmp_path: Path) -> None:
    shutil.copytree(chat_judge, tmp_path / "judge")
    result = json.loads((tmp_path / "judge" / "reward_model.json").read_text())
    del result["trained_on"]
    (tmp_path / "judge" / "reward_model.json").write_text(json.dumps(result))
    prompt, (good, _) = written(chat_judge, 3), answers_of(3)
    [score] = scorer_of(tmp_path / "judge")(Episodes([prompt], [good], [True], [8], None, [chat_of(3)])).raw.tolist()
    assert score == pytest.approx(PlainScores(chat_judge)(prompt + good), abs=1e-4)
