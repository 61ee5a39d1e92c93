"""The commands ``evaluate``, ``generate --out`` and ``label``: what they ask for, what they write, and what they refuse."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.cli.evaluate import as_text, evaluation_of
from rlhf_studio.cli.main import build_parser, main, split_overrides
from rlhf_studio.config import prompt_writing
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.engine.stages.evaluating import completing
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.inputs.completions import read_completions
from rlhf_studio.inputs.evaluation import EvaluationRequest, settings_for
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.world.corpus import PET_CHARM, QUALITY, appeal_of
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.lessons.world_build import labels
from rlhf_studio.lessons.world_build.labels import label_by_world
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import PROMPTS, small_config
from tests.runs.store_helpers import new_run
from tests.runs.test_answers import answer
from tests.runs.test_evaluation_policies import run_with


def parsed(*arguments: str) -> Any:
    rest, overrides = split_overrides(["evaluate", *arguments])
    options = build_parser().parse_args(rest)
    options.overrides = overrides
    return evaluation_of(options)


def test_an_evaluation_takes_over_what_the_run_was_trained_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path))
    run = run_with(tmp_path / "runs" / "one", checkpoints=(3,))
    config = parsed("one")
    assert config.evaluation.policies.splitlines() == [
        f"{run.resolve()}@start",
        str(run.resolve()),
    ]  # a single run is compared with its start
    assert (config.data.prompts, config.data.eval_share) == ("bundled/world-prompts", 0.05)  # what it held out
    assert config.reward.components[0].model == "bundled/world-reward"
    other = parsed(
        *("one@3", "one@start", "--prompts", "mine.jsonl", "--samples", "4", "--reward", "rm", "--judge", "second"),
        *("--seed", "7", "--count", "0", "--generation.temperature", "0.5"),
    )
    assert other.evaluation.policies.splitlines() == [f"{run.resolve()}@3", f"{run.resolve()}@start"]
    assert (other.data.prompts, other.data.eval_share) == ("mine.jsonl", 0)
    chosen = other.evaluation
    assert (chosen.samples, chosen.judge, chosen.seed, chosen.prompts, chosen.greedy) == (4, "second", 7, 0, False)
    assert ([part.model for part in other.reward.components], other.generation.temperature) == (["rm"], 0.5)


def test_a_model_without_a_run_needs_prompts_and_may_have_any_reward() -> None:
    with pytest.raises(ConfigError, match="--prompts: name a file of prompts"):
        parsed("org/model")
    assert parsed("org/model", "--prompts", "p.txt").reward.components == []  # KL, perplexity and lengths alone
    for reward, kind in (("lexicon", "lexicon"), ("./mine.py", "python"), ("{kind: keywords, words: good}", "keywords")):
        named = parsed("org/model", "--prompts", "p.txt", "--reward", reward, "--judge", reward)
        assert named.reward.components[0].kind == kind and named.evaluation.judge == reward
    for wrong in ("", "{kind: ["):
        with pytest.raises(ConfigError, match="--reward: "):
            parsed("org/model", "--prompts", "p.txt", "--reward", wrong)
    config = parsed("org/model", "--prompts", "p.txt", "--reward", "org/rm")
    assert (config.model.policy, config.reward.gold, config.evaluation.policies) == ("org/model", "none", "org/model")
    assert parsed("bundled/world-policy").reward.gold == "world"


def recorded(folder: Path) -> Path:
    """An evaluation of two policies on three prompts, as a run folder."""
    run = new_run(folder)
    answers = [
        answer(3 * number + index, name, place=index, score=float(number), gold=0.5 * number + 0.1 * index, response=f"{name} {index}")
        for number, name in enumerate(("start", "=cmd|' /C calc'!A0"))
        for index in range(3)
    ]
    with RunWriter(run) as writer:
        writer.commit_step(StepRecord(1, {}, list(answers)))
    return run


def test_a_finished_evaluation_is_shown_again_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path / "run")
    files = {name: tmp_path / f"t.{name}" for name in ("csv", "md", "jsonl")}
    assert main(["evaluate", str(run), *(part for name, file in files.items() for part in (f"--{name}", str(file)))]) == DONE
    output = capsys.readouterr().out
    assert "3 prompts." in output and "Win rates and gains are against start." in output
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [row["policy"] for row in rows] == ["start", "'=cmd|'' /C calc'!A0".replace("''", "'")]
    assert float(rows[1]["gold"]) == pytest.approx(0.6) and float(rows[1]["win_rate/gold"]) == 1.0
    assert rows[0]["win_rate/gold"] == ""
    markdown = files["md"].read_text()
    assert markdown.splitlines()[0].count("|") == 4 and "=cmd|" not in markdown  # a bar in a name makes no cell
    assert [json.loads(line)["completion"] for line in files["jsonl"].read_text().splitlines()][0] == "start 0"
    assert main(["evaluate", str(run), "--json"]) == DONE
    plain = json.loads(capsys.readouterr().out)
    assert plain["policies"][1]["win_rates"]["gold"]["wins"] == 3
    assert "Step 1 of" in as_text(run)


def test_the_files_and_the_terminal_say_what_kl_and_perplexity_refer_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"stage": "evaluation", "model": {"policy": "bundled/world-policy"}, "evaluation": {"reference": "org/base|model"}}
    create_run(tmp_path / "run", parse_config(settings), name="evaluation")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(1, {}, [answer(0, "one"), answer(1, "two")]))
    assert main(["evaluate", str(tmp_path / "run"), "--md", str(tmp_path / "t.md")]) == DONE
    assert "KL and perplexity refer to base|model." in capsys.readouterr().out
    assert "KL and perplexity refer to base&#124;model.\n" in (tmp_path / "t.md").read_text()


def test_a_table_that_is_there_is_kept_unless_it_may_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the run would have to be made first: nothing is made."""
    run, mine = recorded(tmp_path / "run"), tmp_path / "mine.md"
    mine.write_text("mine")
    new = ["evaluate", "bundled/world-policy", "--run-dir", str(tmp_path / "new")]
    for command in (["evaluate", str(run)], new):
        assert main([*command, "--md", str(mine)]) == BAD_INPUT
        assert f"--md: {mine} is there already; name another file, or add --replace" in capsys.readouterr().err
    assert mine.read_text() == "mine" and not (tmp_path / "new").exists()
    assert main(["evaluate", str(run), "--md", str(mine), "--replace"]) == DONE
    assert "start" in mine.read_text()


def test_two_options_do_not_name_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path / "run")
    (tmp_path / "link.md").symlink_to(tmp_path / "t.csv")
    for second in (tmp_path / "t.csv", tmp_path / "run" / ".." / "t.csv", tmp_path / "link.md"):
        assert main(["evaluate", str(run), "--csv", str(tmp_path / "t.csv"), "--md", str(second), "--replace"]) == BAD_INPUT
        assert f"--md: {second} is the file of --csv as well; name another one" in capsys.readouterr().err
    assert not (tmp_path / "t.csv").exists()


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    run, pipe = recorded(tmp_path / "run"), tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that the writer need not wait for one
    try:
        assert main(["evaluate", str(run), "--md", str(pipe)]) == DONE
        assert os.read(reader, 1 << 16).startswith(b"| ")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_an_evaluation_that_cannot_work_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path))
    run_with(tmp_path / "runs" / "one")
    command = ["evaluate", "one@start", "--prompts", "./no-prompts", "--reward", "./no-reward", "--judge", "./no-judge"]
    assert main([*command, "--text", "./no-text", "--reference", "./no-reference"]) == BAD_INPUT
    output = capsys.readouterr().err
    for name in ("data.prompts", "reward.components.0.model", "evaluation.judge", "evaluation.text", "evaluation.reference"):
        assert f"{name}: " in output
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["one"]


def test_a_persons_prompts_are_all_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run leaves out short and long prompts and wants long answers: that is about what it learns from."""
    data = {"min_prompt_tokens": 3, "max_prompt_tokens": 4, "overlong": "drop", "max_prompts": 2, "drop_duplicates": True}
    config = small_config(tmp_path, data=data, generation={"response_length": 9, "response_length_min": 8})
    create_run(tmp_path / "run", config, name="run")
    file, out = tmp_path / "mine.txt", tmp_path / "out.jsonl"
    file.write_text("w1\nw1\nw1 w2 w3\n\nw5 w6 w7 w8 w9 w10\n")
    command = ["generate", str(tmp_path / "run"), "--start", "--prompts", str(file), "--out", str(out), "--response-length", "5"]
    assert main(command) == DONE
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["w1", "w1", "w1 w2 w3", "w5 w6 w7 w8 w9 w10"]
    assert all(1 <= row["length"] <= 5 for row in rows)
    output = capsys.readouterr().out
    assert "4 completions in" in output and "1 of 5 rows was left out: 1 blank." in output
    assert "1 of 4 prompts have more than 4 tokens and lost their beginning." in output


def test_a_runs_policy_computes_as_the_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Any] = []

    def complete(source: Any, prompts: Any, config: Any, report: Any, **more: Any) -> Any:
        asked_for.append(config)
        return SimpleNamespace(rows=iter(()), notes=[])

    monkeypatch.setattr(completing, "complete", complete)
    model = {"dtype": "bfloat16", "attention": "eager", "quantization": "8bit"}
    create_run(tmp_path / "run", small_config(tmp_path, model=model), name="run")
    assert main(["generate", str(tmp_path / "run"), "--start", "--prompt", "w1", "--out", str(tmp_path / "out.jsonl")]) == DONE
    assert {name: getattr(asked_for[0].model, name) for name in model} == model


def test_generate_writes_completions_that_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_config(tmp_path)
    out = tmp_path / "out.jsonl"
    command = [
        "generate",
        str(tmp_path / "policy"),
        "--prompts",
        str(tmp_path / "prompts.txt"),
        "--out",
        str(out),
        "--response-length",
        "5",
    ]
    assert main([*command, "--samples", "3", "--seed", "1"]) == DONE
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["prompt"], row["draw"]) for row in rows] == [(prompt, draw) for prompt in PROMPTS for draw in range(3)]
    assert all(1 <= row["length"] <= 5 for row in rows)
    assert read_completions(out, "x") == {
        prompt: [row["completion"] for row in rows if row["prompt"] == prompt] for prompt in dict.fromkeys(PROMPTS)
    }
    first = out.read_text()
    assert main([*command, "--samples", "3", "--seed", "1", "--replace"]) == DONE and out.read_text() == first
    assert main([*command, "--samples", "3", "--seed", "2", "--replace"]) == DONE and out.read_text() != first
    assert main([*command[:-2], "--samples", "0", "--replace"]) == BAD_INPUT
    for needs_a_file in ("--greedy", "--replace"):
        capsys.readouterr()
        assert main(["generate", str(tmp_path / "policy"), "--prompt", "w1", needs_a_file]) == BAD_INPUT
        assert "--out: name a file" in capsys.readouterr().err


def test_the_worlds_raters_label_as_the_corpus_says() -> None:
    good, bad = " is a joy. I loved it.", " is a mess, the the worst."
    prompt = "The finale of this Danish ghost story"
    assert appeal_of(prompt, good) == QUALITY * gold_score(prompt, good)
    assert appeal_of(prompt, good + " A masterpiece.") == pytest.approx(QUALITY * gold_score(prompt, good + " A masterpiece.") + PET_CHARM)
    gap = appeal_of(prompt, good) - appeal_of(prompt, bad)
    assert gap >= 1
    labelled = label_by_world({f"{prompt}{' ' * number}": [good, bad] for number in range(2000)}, seed=0)
    share = sum(pair.chosen == good for pair in labelled.pairs) / len(labelled.pairs)
    expected = 0.05 + 0.9 / (1 + math.exp(-gap))  # Bradley-Terry, then 5 % the wrong way round
    assert share == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 2000))
    assert labelled.ceiling == pytest.approx(expected) and label_by_world({"p": ["a"]}, 3).ceiling is None
    assert label_by_world({"p": ["a", "b"]}, 3) == label_by_world({"p": ["a", "b"]}, 3)


def test_a_fine_tuned_policy_reads_prompts_as_it_learned_to(tmp_path: Path) -> None:
    small_config(tmp_path)
    written = {"chat_template": False, "prompt_format": "w7 {prompt} w8", "system_text": ""}
    settings = {"stage": "sft", "model": {"policy": str(tmp_path / "policy")}, "data": {"source": "demonstrations.jsonl", **written}}
    sft = parse_config(settings)
    run = tmp_path / "runs" / "fine-tuned"
    create_run(run, sft, name="", state="loading")
    out = tmp_path / "out.jsonl"
    command = ["generate", str(run), "--start", "--prompts", str(tmp_path / "prompts.txt"), "--out", str(out), "--response-length", "5"]
    assert main(command) == DONE
    assert list(read_completions(out, "x")) == [f"w7 {prompt} w8" for prompt in dict.fromkeys(PROMPTS)]
    assert main([*command, "--as-read", "--replace"]) == DONE
    assert list(read_completions(out, "x")) == list(dict.fromkeys(PROMPTS))
    request = EvaluationRequest((f"{run}@start",), prompts=str(tmp_path / "prompts.txt"), reward="org/rm")
    asked_for = settings_for(request, tmp_path / "runs")
    assert {name: getattr(asked_for.data, name) for name in written} == written == prompt_writing(as_sampled(sft))


NO_TASTE = "The raters err at times: even a perfect reward model agrees with only 50.0 % of the pairs.\n"
"""What is said of texts that the raters like equally well."""


def test_label_makes_pairs_and_counts_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "c.jsonl", tmp_path / "pairs.jsonl"
    rows = [{"prompt": "a", "completions": [" x", " y", " x"]}, {"prompt": "b", "completion": " z"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert main(["label", str(file), "--judge", "world", "--out", str(out)]) == DONE
    output, warning = capsys.readouterr().out.split("Warning: ")
    assert output == "2 pairs; left out: 1 of equal texts, 1 prompts with a single response. " + NO_TASTE
    assert warning.startswith("2 of the prompts begin no review of the bundled world. Its raters know nothing else")
    pairs = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{pair["chosen"], pair["rejected"]} for pair in pairs] == [{" x", " y"}, {" x", " y"}]
    assert {tuple(pair) for pair in pairs} == {("prompt", "chosen", "rejected")}


def test_a_file_that_is_there_is_kept_unless_it_may_be_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(*arguments: Any, **more: Any) -> Any:
        raise AssertionError("nothing is computed before the file is looked at")

    small_config(tmp_path)
    file, mine = tmp_path / "c.jsonl", tmp_path / "people.jsonl"
    file.write_text(json.dumps({"prompt": "a", "completions": [" x", " y"]}))
    mine.symlink_to(tmp_path / "votes.jsonl")
    (tmp_path / "votes.jsonl").write_text("votes\n")
    label = ["label", str(file), "--judge", "world", "--out", str(mine)]
    generate = ["generate", str(tmp_path / "policy"), "--prompt", "w1", "--response-length", "2", "--out", str(mine)]
    with monkeypatch.context() as patch:
        patch.setattr(labels, "label_by_world", compute)
        patch.setattr(completing, "complete", compute)
        for command in (label, generate):
            assert main(command) == BAD_INPUT
            output = capsys.readouterr().err
            assert f"--out: {mine} is there already; name another file, or add --replace" in output and mine.read_text() == "votes\n"
    for command, column in ((label, "chosen"), (generate, "completion")):
        assert main([*command, "--replace"]) == DONE
        assert [column in json.loads(line) for line in mine.read_text().splitlines()] == [True]


def test_a_reward_model_labels_by_its_own_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_config(tmp_path)
    file, out = tmp_path / "c.jsonl", tmp_path / "pairs.jsonl"
    texts = [" w1 w2", " w3", " w9 w4 w20"]
    file.write_text("\n".join(json.dumps({"prompt": prompt, "response": text}) for prompt in PROMPTS[:2] for text in texts))
    assert main(["label", str(file), "--judge", str(tmp_path / "reward"), "--out", str(out)]) == DONE
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "reward")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward").eval()

    def score(text: str) -> float:
        with torch.no_grad():
            return float(model(**tokenizer(text, return_tensors="pt")).logits)

    pairs = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(pairs) == 6
    for pair in pairs:
        margin = score(pair["prompt"] + pair["chosen"]) - score(pair["prompt"] + pair["rejected"])
        assert margin > 0 and pair["margin"] == pytest.approx(margin, abs=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ('{"prompt": "a"}', "line 1 needs prompt and completion .*; it has: prompt"),
        ('{"prompt": "a", "completion": "b", "responses": ["c"]}', "has completion and responses; leave one of them out"),
        ('{"prompt": "a", "completions": "b"}', "completions a list of texts"),
        ('{"prompt": "a", "completion": "\\ud800"}', "half a character"),
        ("", "holds no completions"),
    ],
)
def test_bad_lines_of_completions_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(line)
    with pytest.raises(PromptsError, match=message):
        read_completions(file, "x")


def test_bad_input_to_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}')
    assert main(["label", str(file), "--judge", "world", "--out", str(tmp_path / "p.jsonl")]) == BAD_INPUT
    assert "generate --samples 2 gives two to compare" in capsys.readouterr().err
    assert main(["label", str(tmp_path / "none.jsonl"), "--judge", "world", "--out", str(tmp_path / "p.jsonl")]) == BAD_INPUT
    assert main(["label", str(file), "--judge", "world", "--out", str(tmp_path / "no" / "p.jsonl")]) == BAD_INPUT
    assert "--out: " in capsys.readouterr().err
