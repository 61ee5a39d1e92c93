"""What is handed over to verl and OpenRLHF: the same prompts, the same rewards, every setting under its name, or named as missing."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet
import pytest
from transformers import AutoTokenizer

from benchmarks import handover, peers
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.attach import Studio
from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.config.permissions import Permissions
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.scorer import build_scorer
from rlhf_studio.handover import write
from rlhf_studio.handover.handed import RolloutFile
from rlhf_studio.handover.script import hydra_value
from rlhf_studio.handover.translation import OF_THIS_PROGRAM, Cluster, Translation, defaults, tensor_parallel
from rlhf_studio.handover.write import TRANSLATE, hand_over
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.runs.reader import RunReader

ROOT = Path(__file__).resolve().parents[2]
SUMS = load_recipe("sums").config
ALL_RULES = [
    {"kind": "length", "target": 5, "tolerance": 4, "weight": 0.5},
    {"kind": "keywords", "words": "good, very good", "cap": 2},
    {"kind": "regex", "name": "score", "pattern": r"\d\.$"},
    {"kind": "repetition", "n": 2},
    {"kind": "lexicon"},
    {"kind": "answer", "compare": "number"},
    {"kind": "answer", "compare": "regex", "pattern": r"is\s+(\S+)", "reference_is": "answer", "weight": 0.25},
    {"kind": "bleu", "smoothing": "floor"},
    {"kind": "rouge"},
]
RESPONSES = ["It is 12.", "not good, not good, the answer is 3/4", "", "1 1 1 1 is 12", "lovely. terrible! \u00fcber-good \u2212 5"]
REFERENCES = ["12", "the answer is 3/4", "7", "is 12", "-5"]


def sums(**settings: Any) -> RunConfig:
    given = SUMS.model_dump(mode="json")
    given["data"]["max_prompts"] = 100  # quickly read
    for section, values in settings.items():
        given[section] |= values
    return parse_ppo(given)


FEW = sums()


def module_of(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reward_of_{folder.name}", folder / "reward.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of one's own are not tried in a process of their own first, which takes seconds."""
    monkeypatch.setattr(write, "_try_functions", lambda *_: None)


def test_the_reward_file_scores_as_the_run_does(tmp_path: Path) -> None:
    """Every rule in one file, with clip and penalties; OpenRLHF shows the end token, verl shows none."""
    shape = {"score_clip": 1.5, "length_penalty": 0.01, "missing_eos_penalty": 0.5}
    config = sums(reward={"components": ALL_RULES, **shape})
    hand_over(config, "openrlhf", tmp_path / "openrlhf")
    given = module_of(tmp_path / "openrlhf")
    lengths, stopped = [], [row % 2 == 0 for row in range(len(RESPONSES))]
    rewards = []
    for response, reference, ended in zip(RESPONSES, REFERENCES, stopped, strict=True):
        told = given.reward_func(["2+2\n" + response + "<|endoftext|>" * ended], ["2+2\n"], [reference])
        rewards.append(told["rewards"])
        lengths.append(given.REWARD.length(response, ended))
    scorer = build_scorer(config.reward, choose_compute(config), lambda text, fraction: None)
    scores = scorer(Episodes(["2+2\n"] * len(RESPONSES), RESPONSES, stopped, lengths, REFERENCES))
    assert rewards == pytest.approx(scores.shaped.tolist(), abs=1e-6)
    assert set(told["extra_logs"]) == {
        *("length", "keywords", "score component", "repetition", "lexicon", "answer", "answer 2", "bleu", "rouge"),
    }
    lines = [json.loads(line) for line in (tmp_path / "openrlhf/rollouts/rollouts.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == rewards and [line["stopped"] for line in lines] == stopped


def test_verl_gets_the_score_and_its_parts(tmp_path: Path) -> None:
    hand_over(sums(reward={"components": [{"kind": "answer", "name": "right", "weight": 2.0}]}), "verl", tmp_path / "out")
    score = module_of(tmp_path / "out").compute_score
    assert score("sums", "so 4", "4", {"prompt": "2+2"}) == {"score": 2.0, "right": 2.0}
    assert score("sums", "so 5", "4") == {"score": 0.0, "right": 0.0}


def test_every_component_counts_whatever_it_is_called(tmp_path: Path) -> None:
    rules = [{"kind": "length", "name": name, "target": 9, "weight": weight} for name, weight in (("length 2", 1), ("", 2), ("", 4))]
    hand_over(sums(reward={"components": rules}), "verl", tmp_path / "out")
    score = module_of(tmp_path / "out").compute_score("sums", "12", "")
    one = score.pop("length 2")
    assert one and score == {"score": 7 * one, "length": 2 * one, "length 3": 4 * one}


def test_a_function_of_your_own_goes_along(tmp_path: Path, untried: None) -> None:
    own = tmp_path / "own.py"
    lines = ["def score(prompts, responses, **extra):", ""]
    lines.append("    return [len(p) + 10 * len(r) + 100 * n for p, r, n in zip(prompts, responses, extra['lengths'])]")
    own.write_text("\n".join(lines) + "\n")
    config = sums(reward={"components": [{"kind": "python", "file": str(own), "weight": 0.5}]})
    with pytest.raises(ConfigError, match="is not allowed here"):
        hand_over(config, "verl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    hand_over(config, "verl", tmp_path / "out", permissions=Permissions(files=(os.path.realpath(own),)))
    own.unlink()
    tokens = len(AutoTokenizer.from_pretrained(resolve("bundled/sums-policy"))("12+")["input_ids"]) + 1  # with the end token
    assert module_of(tmp_path / "out").compute_score("", "12+", "", {"prompt": "xy"})["score"] == 16.0 + 50 * tokens


@pytest.mark.parametrize("engine", ["verl", "openrlhf"])
def test_a_function_is_called_with_what_it_names(engine: Any, tmp_path: Path, untried: None) -> None:
    """As in training: without further parameters it gets none. What an engine does not tell is not handed over."""
    own = tmp_path / "own.py"
    own.write_text(
        "def short(prompts, responses):\n    return [0.25 * len(text) for text in responses]\n"
        "def asks(prompts, responses, tokens):\n    return [1.0] * len(tokens)\n"
    )
    given = module_of(handed_with(own, "short", engine))
    if engine == "verl":
        assert given.compute_score("", "abcd", "", {"prompt": "xy"})["score"] == 1.0
    else:
        assert given.reward_func(["xyabcd"], ["xy"], [""])["rewards"] == 1.0
    with pytest.raises(ConfigError, match=f"asks asks for tokens, which {engine} does not give"):
        handed_with(own, "asks", engine)
    assert not (tmp_path / "asks").exists()


def test_a_function_that_fails_on_a_first_prompt_is_not_handed_over(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def fails(prompts, responses):\n    return [missing for text in responses]\n")
    with pytest.raises(ConfigError, match="NameError: name 'missing'"):
        handed_with(own, "fails", "verl")
    assert not (tmp_path / "fails").exists()


def handed_with(own: Path, function: str, engine: Any) -> Path:
    """The folder beside the file of one's own, with one of its functions as the reward."""
    config = sums(reward={"components": [{"kind": "python", "file": str(own), "function": function}]})
    hand_over(config, engine, own.with_name(function), permissions=Permissions(files=(os.path.realpath(own),)))
    return own.with_name(function)


def test_all_problems_are_told_at_once_and_whose_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a recipe sets and the person did not write is named as the recipe's."""
    (tmp_path / "p.jsonl").write_text('{"frage": "2+2", "answer": "4"}\n')
    mine = tmp_path / "mine.yaml"
    ppo = "ppo: {batch_size: 100, mini_batch_size: 50}"
    mine.write_text(f"recipe: sums\n{ppo}\ndata: {{column: frage, prompts: {tmp_path / 'p.jsonl'}}}\n")
    main(["hand-over", "--config", str(mine), "--to", "verl", str(tmp_path / "out")])
    held_out, shared = capsys.readouterr().err.splitlines()
    assert "no column 'frage'" in held_out and held_out.endswith("(this setting comes from the recipe sums)")
    assert "ppo.batch_size: 100 responses cannot be shared equally by 8 GPUs" in shared and "recipe" not in shared
    mine.write_text("recipe: sums\nppo: {advantage: grpo, responses_per_prompt: 4, lam: 0.5}\n")
    main(["hand-over", "--config", str(mine), "--to", "verl", str(tmp_path / "out")])
    told = {line.split(": ")[1]: "recipe sums" in line for line in capsys.readouterr().err.splitlines()}
    assert told == {
        **{"ppo.kl_placement": False, "ppo.kl_estimator": False, "ppo.lam": False},
        **{"ppo.critic_learning_rate": True, "ppo.cliprange_value": True, "ppo.vf_coef": True},
    }


def test_a_run_that_others_train_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Studio(run="mine", workspace=tmp_path) as studio:
        studio.step(responses=["a"])
        folder = studio.run_dir
    capsys.readouterr()  # where the training is recorded
    main(["hand-over", str(folder), "--to", "verl", str(tmp_path / "out")])
    (line,) = capsys.readouterr().err.splitlines()
    assert "was recorded from " in line and "so its model, prompts and rewards are not here" in line and "--config FILE" in line


def test_the_prompts_are_those_of_the_run(tmp_path: Path) -> None:
    """The prompt's form is written, references go along, and what the run holds out stays out."""
    hand_over(SUMS, "verl", tmp_path / "verl")
    hand_over(SUMS, "openrlhf", tmp_path / "openrlhf")
    rows = pyarrow.parquet.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "openrlhf" / "train.jsonl").read_text().splitlines()]
    source = [json.loads(line) for line in (ROOT / "assets/sums/prompts.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows] == [[{"role": "user", "content": row["question"] + "\n"}] for row in source]
    assert [row["reward_model"]["ground_truth"] for row in rows] == [row["answer"] for row in source]
    wanted = [(row["question"] + "\n", row["answer"]) for row in source]
    drawn = [(line["prompt"], line["reference"]) for line in lines]
    assert len(drawn) == 30 * 128  # a row for each prompt of each step, in whole passes
    for first in range(0, len(drawn) - len(wanted), len(wanted)):
        assert sorted(drawn[first : first + len(wanted)]) == sorted(wanted)
    assert drawn[: len(wanted)] != wanted  # data.shuffle
    held_out = pyarrow.parquet.read_table(tmp_path / "verl" / "held_out.parquet").to_pylist()
    assert held_out and not {row["extra_info"]["prompt"] for row in held_out} & {row["extra_info"]["prompt"] for row in rows}


def test_settings_by_their_names() -> None:
    """Batches count prompts there; the target of the KL is one per token; what is unlimited here has a large limit there."""
    group = {"advantage": "grpo", "responses_per_prompt": 8, "kl_placement": "loss", "kl_estimator": "k3"}
    unset = {"critic_learning_rate": 0.0, "lam": 0.95, "vf_coef": 0.1, "cliprange_value": 0.2}
    grpo = sums(ppo=group | unset)
    adaptive = sums(ppo={"kl_controller": "adaptive", "kl_target": 8.0, "lr_schedule": "cosine", "warmup_steps": 3, "dual_clip": 3.0})

    def put(config: RunConfig, engine: Any, rows: int = 1000) -> dict[str, Any]:
        return TRANSLATE[engine](config, Cluster(gpus=4, nodes=2), 7_000_000_000, "policy", rows).options

    verl, openrlhf = put(grpo, "verl"), put(grpo, "openrlhf", rows=70)
    assert (verl["data.train_batch_size"], verl["actor_rollout_ref.rollout.n"]) == (16, 8)
    assert verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == 8  # prompts: 64 responses
    assert verl["actor_rollout_ref.actor.use_kl_loss"] and not verl["algorithm.use_kl_in_reward"]
    assert verl["actor_rollout_ref.actor.kl_loss_type"] == "low_var_kl"
    assert not any(name.startswith("critic.") for name in verl)
    assert (openrlhf["rollout.batch_size"], openrlhf["train.batch_size"]) == (16, 64)
    assert (openrlhf["data.max_samples"], openrlhf["train.num_episodes"]) == (30 * 16, 1)
    long = put(sums(ppo={"steps": 1_000_000}), "openrlhf", rows=1000)
    assert (long["data.max_samples"], long["train.num_episodes"]) == (896, 142_858)  # 7 steps a pass
    assert openrlhf["algo.advantage.estimator"] == "group_norm" and openrlhf["algo.kl.use_loss"] is True
    verl, openrlhf = put(adaptive, "verl"), put(adaptive, "openrlhf")
    assert verl["algorithm.kl_ctrl.target_kl"] == openrlhf["algo.kl.target"] == 8.0 / 40
    assert verl["actor_rollout_ref.actor.optim.lr_warmup_steps"] == 3 and openrlhf["actor.lr_warmup_ratio"] == 0.1
    assert verl["actor_rollout_ref.actor.clip_ratio_c"] == openrlhf["actor.dual_clip"] == 3.0
    assert verl["critic.cliprange_value"] == openrlhf["critic.value_clip"] == 1e6
    assert verl["trainer.total_epochs"] == 5  # 7 steps a pass
    assert [tensor_parallel(size, 8) for size in (None, 7_000_000_000, 13_000_000_000, 70_000_000_000)] == [1, 1, 2, 8]


@pytest.mark.parametrize("engine", ["verl", "openrlhf"])
def test_no_setting_is_lost_in_silence(engine: Any) -> None:
    """With every setting of these sections away from its default, each is handed over, different, or missing."""
    other = {
        "model": {"dtype": "float32", "gradient_checkpointing": True, "attention": "eager", "revision": "v2", "reference": "other",
                  "reference_revision": "v3", "value_head_init": "normal", "quantization": "4bit"},
        "lora": {"enabled": True, "r": 4, "alpha": 9.0, "dropout": 0.1, "target_modules": "q_proj", "bias": "all", "use_rslora": True,
                 "use_dora": True, "init_lora_weights": "gaussian"},
        "critic": {"kind": "separate", "start": "model", "model": "critic", "revision": "v4"},
        "ppo": {"whiten_rewards": True, "whiten_advantages": False, "target_kl": 0.1, "ratio_threshold": 5.0, "reference_ema": 0.1,
                "schedule": "8 ppo.kl_coef 0.2", "kl_estimator": "full", "entropy_coef": 0.01, "micro_batch_size": 32,
                "critic_warmup_steps": 2, "weight_decay": 0.1, "adam_epsilon": 1e-8, "max_grad_norm": 0.0, "cliprange_high": 0.3},
        "generation": {"top_k": 5, "top_p": 0.9, "temperature": 0.7, "stop_token": "7", "response_length_min": 4},
        "engine": {"seed": 3, "keep_checkpoints": 5, "checkpoint_every": 0, "report_to": "wandb"},
    }  # fmt: skip
    config = sums(**other)
    to: Translation = TRANSLATE[engine](config, Cluster(), None, "policy", 1000)
    named = {row.setting for row in to.handed} | {remark.setting for remark in (*to.changed, *to.missing)}
    assert "ppo.vf_coef" in named
    alone = {"verl": ("trainer.critic_warmup", 3), "openrlhf": ("critic.freezing_steps", 1)}[engine]  # from 1: trains at 3; from 0: after 1
    assert to.options[alone[0]] == alone[1]
    for name, default in defaults().items():
        section, _, setting = name.partition(".")
        if setting and section not in ("data", "reward") and name not in OF_THIS_PROGRAM:
            assert name in named or getattr(getattr(config, section), setting) == default, name


def test_what_cannot_be_handed_over_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    ensemble = {"components": [{"kind": "ensemble", "models": "a, b"}, {"kind": "length"}]}
    cases = [
        (sums(reward=ensemble), "verl", Cluster(), "reward.components.0: a component of the kind ensemble cannot be written as a function"),
        (sums(reward={"components": [{"kind": "length"}, {"kind": "reward_model"}]}), "verl", Cluster(), "only where it is the one"),
        (SUMS, "verl", Cluster(gpus=7), "128 responses cannot be shared equally by 7 GPUs"),
        (SUMS, "openrlhf", Cluster(gpus=7), "64 responses cannot be shared equally by 7 GPUs"),
        (sums(model={"policy": str(tmp_path / "nowhere")}), "verl", Cluster(), "model.policy"),
        (SUMS.model_copy(update={"name": "${oc.env:HOME}"}), "verl", Cluster(), "experiment_name: verl would read .* as an interpolation"),
        (SUMS.model_copy(update={"name": "???"}), "verl", Cluster(), "not set"),
    ]
    for config, engine, cluster, message in cases:
        with pytest.raises(ConfigError, match=message):
            hand_over(config, engine, out, cluster=cluster)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["hand-over", "--recipe", "sums", "--to", "verl", str(tmp_path / "full")]) == 2
    assert main(["hand-over", "--recipe", "world-sft", "--to", "verl", str(out)]) == 2
    assert main(["hand-over", "--recipe", "sums", "--to", "verl", str(out), "--gpus", "0"]) == 2
    told = capsys.readouterr().err
    assert "name a new folder" in told and "--gpus: 0 is not a number" in told and not out.exists()


def test_a_place_where_no_folder_can_be_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link to an empty folder is one that can."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for out in ("file/out", "x" * 256, "loop", "/proc/no/out"):
        assert main(["hand-over", "--recipe", "sums", "--to", "verl", str(tmp_path / out), "--data.max_prompts", "9"]) == 2
        assert "cannot be written: " in capsys.readouterr().err, out
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    hand_over(FEW, "verl", tmp_path / "link")
    hand_over(FEW, "verl", tmp_path / ("x" * 255))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "empty" / "run.sh").exists()


def test_the_script_says_what_was_translated(tmp_path: Path) -> None:
    """bash and Hydra read it in a folder with blanks and quotes in its name; what is added comes last; the page names what is missing."""
    folder = tmp_path / """o'brien's "a $b" """
    config = FEW.model_copy(update={"name": 'my "run"'})
    hand_over(config, "verl", folder)
    module, *arguments = handover.arguments_of(folder, ["trainer.nnodes=3"])
    assert module == "verl.trainer.main_ppo" and arguments[-1] == "trainer.nnodes=3"
    escaped = str(folder).replace('"', '\\"')
    assert f'trainer.rollout_data_dir="{escaped}/rollouts"' in arguments
    assert 'trainer.experiment_name="my \\"run\\""' in arguments
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "- `ppo.ratio_threshold`: verl skips" in page and "| `ppo.kl_coef` | 0.02 | `algorithm.kl_ctrl.kl_coef` | 0.02 |" in page
    assert [hydra_value(value) for value in (True, 1e-5, "a/b", "true", "1e5", ["x", 2])] == [
        "True",
        "1e-05",
        "a/b",
        '"true"',
        '"1e5"',
        "[x,2]",
    ]
    # as OverridesParser of Hydra 1.3 reads them back: a backslash means itself but before a quote
    assert [hydra_value(text) for text in (r"a\b c", "o'b", r"a\"b", "a\\")] == [r'"a\b c"', '"o\'b"', r'"a\\\"b"', r'"a\\"']


def test_openrlhfs_responses_open_as_a_run(tmp_path: Path) -> None:
    """Two writers, as two processes have, count the steps together; a full disk ends the recording with one warning."""
    path = tmp_path / "rollouts" / "rollouts.jsonl"
    for row in range(8):
        RolloutFile(path, 4).write("p", f"r {row}", 2, {"score": row / 8, "rule": row / 8}, True)
    opened = open_log(path, tmp_path / "workspace")
    assert (opened.steps, opened.rollouts) == (2, 8)
    rollouts = RunReader(tmp_path / "workspace" / "runs" / opened.run_id).rollouts(2)
    assert [rollout.response for rollout in rollouts] == ["r 4", "r 5", "r 6", "r 7"]
    blocked = RolloutFile(tmp_path / "rollouts" / "rollouts.jsonl" / "no" / "file.jsonl", 4)
    with pytest.warns(UserWarning, match="no longer recorded"):
        blocked.write("p", "r", 1, {"score": 0.0}, True)
    blocked.write("p", "r", 1, {"score": 0.0}, True)


def test_a_killed_writer_harms_neither_the_steps_nor_the_lines(tmp_path: Path) -> None:
    """Killed at any byte, its last line is gone; the next process goes on with the step, whatever else lies in the folder."""
    path = tmp_path / "rollouts.jsonl"
    first, second = RolloutFile(path, 2), RolloutFile(path, 2)
    for writer in (first, second, first):
        writer.write("p", "r", 2, {"score": 0.0}, True)
    path.with_suffix(".count").write_text("garbled")
    with path.open("a") as file:
        file.write('{"step": 2, "prompt": "p')
    for writer in (RolloutFile(path, 2), second, first):
        writer.write("p", "r", 2, {"score": 0.0}, True)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 1, 2, 2, 3, 3]
    path.unlink()
    first.write("p", "r", 2, {"score": 0.0}, True)
    assert json.loads(path.read_text())["step"] == 1


CASES = {"verl": ("world-lora", "sums-rloo"), "openrlhf": ("world", "sums", "world-grpo", "sums-rloo", "world-lora")}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["verl", "openrlhf"])
def test_their_own_loaders_take_it(engine: Any, tmp_path: Path) -> None:
    """``python -m benchmarks.peers verl-0.9 openrlhf-0.11`` makes both environments."""
    peer = {"verl": "verl-0.9", "openrlhf": "openrlhf-0.11"}[engine]
    if not (peers.folder() / peer / "bin" / "python").exists():
        pytest.skip(f"python -m benchmarks.peers {peer}")
    for recipe in CASES[engine]:
        folder = tmp_path / """o'brien's "runs" """ / recipe
        hand_over(load_recipe(recipe).config, engine, folder)
        done = handover.check(folder)
        assert done.returncode == 0, (recipe, done.stderr[-2000:])
        if engine == "verl":
            first = pyarrow.parquet.read_table(folder / "train.parquet").to_pylist()[0]["extra_info"]["prompt"]
            policy = resolve(load_recipe(recipe).config.model.policy)  # type: ignore[attr-defined]
            assert f"first prompt: {AutoTokenizer.from_pretrained(policy)(first)['input_ids']}" in done.stdout
    made_up = {"verl": ["trainer.no_such_setting=1"], "openrlhf": ["--no.such_setting", "1"]}[engine]
    refused = handover.check(folder, made_up)
    assert refused.returncode != 0 and "such_setting" in refused.stderr


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a person types it, with a setting changed."""
    assert main(["hand-over", "--recipe", "sums", "--to", "verl", str(tmp_path / "out"), "--ppo.steps", "7"]) == 0
    assert "no counterpart: ppo.ratio_threshold" in capsys.readouterr().out
    assert "trainer.total_training_steps=7" in handover.arguments_of(tmp_path / "out")
