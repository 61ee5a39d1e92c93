"""The library: the classic loop on a model in memory, held against a run of the engine on the same model in a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer as build_from_settings
from rlhf_studio.engine.process import program_run
from rlhf_studio.engine.process.notify import Notifier
from rlhf_studio.engine.process.trackers import KINDS
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.inputs.preflight import check_run
from rlhf_studio.inputs.prompts import read_prompts
from rlhf_studio.library import PPOTrainer, RunEnded, build_trainer
from rlhf_studio.library.given import FunctionReward, prompts_from
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import RunExists
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import PROMPTS, small_config, tracing

ROOT = Path(__file__).resolve().parents[1]
PPO = {"steps": 2, "batch_size": 8, "mini_batch_size": 4, "ppo_epochs": 2, "learning_rate": 1e-3}
LENGTH = {"kind": "length", "target": 3, "tolerance": 4}


def by_length(prompts: list[str], responses: list[str]) -> list[float]:
    return [float(len(response)) for response in responses]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    torch.set_num_threads(1)
    small_config(home := tmp_path_factory.mktemp("home"), "gpt2")
    with tracing(False):
        yield home


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "policy"


@pytest.fixture(scope="module")
def untrained(home: Path) -> PPOTrainer:
    """A trainer that no test lets learn."""
    return build(home / "policy", None)


def build(folder: Path, reward: Any = by_length, *, run_dir: Path | None = None, name: str = "", **settings: Any) -> PPOTrainer:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    settings = {"ppo": PPO, "generation": {"response_length": 6}, "engine": {"device": "cpu"}, **settings}
    return build_trainer(model, tokenizer, PROMPTS, reward, settings=settings, run_dir=run_dir, name=name)


def weights(trainer: PPOTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


def test_a_loop_of_your_own_is_the_run(folder: Path, tmp_path: Path) -> None:
    """Sampling and stepping by hand, and training in one go into a run folder: the same numbers and weights, bit for bit.

    Step 2 has another temperature and another coefficient: planned changes are made in a loop of your own too.
    """
    settings = {"lora": {"enabled": True, "r": 4}, "ppo": {**PPO, "schedule": "2 generation.temperature 0.5, 2 ppo.kl_coef 0.7"}}
    by_hand, in_one_go = build(folder, None, **settings), build(folder, run_dir=tmp_path / "run", **settings)
    own = []
    for _ in range(2):
        rollout = by_hand.sample()
        own.append(by_hand.step(rollout, by_length([], rollout.responses)))
    together = list(in_one_go.train())
    for name in ("objective/scores", "objective/kl", "loss/policy_avg", "policy/approxkl_avg", "val/ratio"):
        assert [stats[name] for stats in own] == [stats[name] for stats in together], name
    assert own[0]["objective/scores"] != own[1]["objective/scores"]
    assert own[1]["objective/kl_coef"] == together[1]["objective/kl_coef"] == pytest.approx(0.7)
    assert abs(own[1]["policy/first_log_ratio"]) < 1e-5
    ours, theirs = weights(by_hand), weights(in_one_go)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_it_is_the_engine_of_a_run(folder: Path, tmp_path: Path) -> None:
    """A run that loads the same model from its folder, with a reward that looks at the same text."""
    config = small_config(tmp_path, "gpt2", ppo=PPO, reward={"components": [LENGTH]}, engine={"watch_prompts": 0})
    run, _ = build_from_settings(config, choose_compute(config), lambda text, fraction: None)
    component = run.models.scorer.components[0]
    trainer = build(folder, None)
    for _ in range(2):
        rollout = trainer.sample()
        ended = rollout.stopped.tolist()
        episodes = type("Episodes", (), {"lengths": rollout.tokens.lengths.tolist(), "stopped": ended, "responses": rollout.responses})
        record = run.step()
        assert [sample.response for sample in record.rollouts] == rollout.responses[: len(record.rollouts)]
        scores = component.source(episodes).scores
        assert trainer.step(rollout, scores)["objective/kl"] == record.metrics["objective/kl"]
    ours, theirs = trainer.model.state_dict(), run.models.policy.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_prompts_of_your_own(untrained: PPOTrainer) -> None:
    rollout = untrained.sample(["w1 w2"] * 8)
    assert rollout.prompts.texts == ["w1 w2"] * 8 and len(rollout.responses) == 8
    with pytest.raises(ValueError, match=r"a step takes ppo\.batch_size = 8 prompts, but there are 2"):
        untrained.sample(["w1", "w2"])
    with pytest.raises(TypeError, match="prompt 2 is a int, not a string"):
        untrained.sample(["w1", 2, *["w3"] * 6])  # type: ignore[list-item]


def test_responses_that_are_compared_answer_one_prompt(folder: Path) -> None:
    trainer = build(folder, None, ppo={**PPO, "advantage": "rloo", "responses_per_prompt": 4})
    with pytest.raises(ValueError, match=r"with ppo.advantage rloo the 4 responses .*: give each prompt 4 times in a row"):
        trainer.sample([*PROMPTS, *PROMPTS[:2]])
    rollout = trainer.sample([PROMPTS[0]] * 4 + [PROMPTS[1]] * 4)
    before = weights(trainer)
    assert "val/values_mean" not in trainer.step(rollout, by_length([], rollout.responses))
    assert any(not torch.equal(weight, before[name]) for name, weight in weights(trainer).items())


def test_scores_are_checked_before_anything_is_learned(untrained: PPOTrainer) -> None:
    before, rollout = weights(untrained), untrained.sample()
    wrong: list[tuple[Any, str]] = [
        ([1.0, 2.0], "there are 8 responses, but the scores have the shape"),
        ([0.0] * 3 + [float("nan")] + [0.0] * 4, "the score of response 4 is not finite"),
        (lambda prompts, responses: [1.0], "the scores function failed: gave 1 scores for 8 responses"),
    ]
    for scores, message in wrong:
        with pytest.raises(ValueError, match=message):
            untrained.step(rollout, scores)
    assert all(torch.equal(weight, before[name]) for name, weight in weights(untrained).items())
    with pytest.raises(ValueError, match="there is no reward"):
        next(untrained.train())


def test_a_rollout_is_learned_from_once_and_while_it_is_the_policys_own(folder: Path) -> None:
    trainer = build(folder, None)
    first, second = trainer.sample(), trainer.sample()
    lengths = by_length([], second.responses)
    assert trainer.step(second, by_length)["objective/scores"] == pytest.approx(sum(lengths) / 8)
    for stale in (first, second):
        with pytest.raises(ValueError, match="the policy has learned since these responses were sampled"):
            trainer.step(stale, [0.0] * 8)
    trainer.step(trainer.sample(), [0.0] * 8)
    with pytest.raises(ValueError, match=r"all ppo\.steps = 2 are done"):
        trainer.step(trainer.sample(), [0.0] * 8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompts": "w1 w2"}, TypeError, "prompts is one string; give a list of strings"),
        ({"prompts": []}, ValueError, "there are no prompts"),
        ({"reward": 5}, TypeError, "reward is a int"),
        ({"settings": [1]}, ConfigError, "should be settings as"),
    ],
)
def test_bad_arguments_leave_the_model_as_it_was(folder: Path, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16), AutoTokenizer.from_pretrained(folder)
    model.train().requires_grad_(False)
    before = str(model)
    with pytest.raises(error, match=message):
        build_trainer(model, tokenizer, **{"prompts": PROMPTS, "reward": by_length, **arguments})
    assert model.dtype is torch.bfloat16 and model.training and str(model) == before
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_nothing_is_saved_over_a_file(untrained: PPOTrainer, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotADirectoryError, match="out is a file; name a folder"):
        untrained.save_pretrained(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda responses: None, "it gave a NoneType and not a list of numbers"),
        (lambda responses: "12345678", "it gave a str and not a list of numbers"),
        (lambda responses: [10**5000] * len(responses), ".*which is not a number for the prompt"),
        (lambda responses: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda responses: [float(len(responses.pop())) for _ in range(8)][:7], "gave 7 scores for 8 responses; it was scoring the batch"),
    ],
)
def test_a_reward_that_gives_no_scores(give: Callable[[list[str]], Any], said: str) -> None:
    """Also when it emptied the list that it was given: the run's own stays whole."""
    component = Component("mine", 1.0, FunctionReward(lambda prompts, responses: give(responses)))
    episodes = Episodes(list("abcdefgh"), list("ijklmnop"), [True] * 8, [1] * 8)
    with pytest.raises(RewardError, match=f"^reward component mine: {said}") as caught:
        component.answer(episodes)
    assert episodes.responses == list("ijklmnop") and len(str(caught.value)) < 500


def test_what_is_in_memory_is_not_named_again(untrained: PPOTrainer) -> None:
    model, tokenizer = untrained.model, untrained.trainer.models.tokenizer
    with pytest.raises(ConfigError, match=r"data\.prompts: is in memory here"):
        build_trainer(model, tokenizer, PROMPTS, settings={"data": {"prompts": "prompts.txt"}})
    with pytest.raises(ConfigError, match=r"ppo\.clip_range"):
        build_trainer(model, tokenizer, PROMPTS, settings={"ppo": {"clip_range": 0.1}})


def test_what_is_saved_is_what_was_trained(folder: Path, tmp_path: Path) -> None:
    """A model with an adapter is not trained once more."""
    trainer = build(folder, lora={"enabled": True, "r": 4})
    next(trainer.train())
    trainer.save_pretrained(tmp_path / "out")
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer("w1 w2 w3", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, trainer.model(ids).logits, atol=1e-5, rtol=0)
        assert not torch.allclose(loaded(ids).logits, AutoModelForCausalLM.from_pretrained(folder)(ids).logits, atol=1e-3)
    with pytest.raises(ConfigError, match="model: has a LoRA adapter already"):
        build_trainer(trainer.model, tokenizer, PROMPTS)


def python(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prompts_of_a_dataset(folder: Path) -> None:
    """Its column by name; of a table the same. What is wrong is said before the model is touched."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    data = Dataset.from_dict({"query": PROMPTS, "other": list(range(len(PROMPTS)))})
    settings = {"ppo": PPO, "generation": {"response_length": 6}, "engine": {"device": "cpu"}}
    trainer = build_trainer(model, tokenizer, data, column="query", settings=settings)
    assert set(trainer.sample().prompts.texts) <= set(PROMPTS)
    assert prompts_from(data.to_pandas(), "query").texts == prompts_from(data.to_iterable_dataset(), "query").texts == PROMPTS
    wrong = [
        (data, ValueError, "no column 'prompt'; it has query, other: name one with column="),
        ({"train": data}, TypeError, r"has the parts train; give one of them, such as prompts\['train'\]"),
        ([{"prompt": "w1"}], TypeError, "prompt 1 is a dict, not a string; give a dataset, and name its column"),
        (data.rename_column("other", "prompt"), TypeError, "prompt 1 is a int, not a string"),
        (7, TypeError, "prompts is a int; give strings, or a dataset"),
    ]
    for given, error, message in wrong:
        with pytest.raises(error, match=message):
            build_trainer(model, tokenizer, given, settings=settings)


def test_a_recorded_run_is_one_of_the_app(folder: Path, tmp_path: Path) -> None:
    """The store has what the program saw."""
    run_dir = tmp_path / "runs" / "mine"
    trainer = build(folder, run_dir=run_dir, name="mine")
    reader = RunReader(run_dir)
    assert reader.status().state == "running" and reader.status().total_steps == 2
    stats = list(trainer.train())
    status = reader.status()
    assert (status.state, status.step, status.name) == ("finished", 2, "mine") and len(reader.checkpoints()) == 1
    assert [values["objective/scores"] for _, values in reader.metrics_since(0)] == [step["objective/scores"] for step in stats]
    assert reader.rollouts(2) and reader.watched() and reader.config().data.column == "prompt"  # type: ignore[attr-defined]
    assert read_prompts(reader.config().data).texts == PROMPTS  # type: ignore[attr-defined]
    assert [problem.field for problem in check_run(reader.config(), tmp_path)] == ["reward.components.0.file"]  # what is missing to go on
    assert reader.origin().program in (Path(sys.argv[0]).name, "a Python program") and reader.origin().trained_by
    with pytest.raises(RunExists, match="is there already"):
        build(folder, run_dir=run_dir)


def test_a_stop_on_the_page_stops_the_program(folder: Path, tmp_path: Path) -> None:
    trainer = build(folder, None, run_dir=tmp_path / "run", ppo={**PPO, "steps": 9})
    trainer.step(trainer.sample(), by_length)
    send_command(tmp_path / "run", "stop")
    with pytest.raises(RunEnded, match="The checkpoint of step 1 is in"):
        trainer.step(trainer.sample(), by_length)
    assert RunReader(tmp_path / "run").status().state == "stopped"
    with pytest.raises(RunEnded, match="has ended"):
        trainer.step(trainer.sample(), by_length)


def test_a_program_that_ends_or_fails_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = {"device": "cpu", "watch_prompts": 0}
    trainer = build(folder, run_dir=tmp_path / "left", engine=engine)
    next(trainer.train())
    del trainer
    assert RunReader(tmp_path / "left").status().state == "stopped"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # imported, and no notebook
    monkeypatch.setattr(sys, "last_exc", OSError("no more data " * 1000), raising=False)
    died = build(folder, run_dir=tmp_path / "died", engine=engine)
    del died
    status = RunReader(tmp_path / "died").status()
    assert status.state == "failed" and "no more data" in status.cause and len(status.cause) < 1000
    monkeypatch.undo()
    fails = build(folder, lambda p, r: 1 / 0, run_dir=tmp_path / "failed", engine=engine)
    with pytest.raises(RewardError, match="ZeroDivisionError"):
        next(fails.train())
    status = RunReader(tmp_path / "failed").status()
    assert status.state == "failed" and "ZeroDivisionError" in status.cause
    with pytest.raises(RunEnded, match="has ended.*ZeroDivisionError"):
        list(fails.train())
    leaves = build(folder, lambda p, r: sys.exit("no judge"), run_dir=tmp_path / "leaves", engine=engine)
    with pytest.raises(SystemExit):
        next(leaves.train())
    status = RunReader(tmp_path / "leaves").status()
    assert status.state == "failed" and status.cause.startswith("The program ended itself: no judge")
    late = build(folder, ppo={**PPO, "steps": 1}, engine=engine)  # its last step fails after the policy has learned
    monkeypatch.setattr(late.trainer, "record", lambda rollout, stats: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(late.train())
    with pytest.raises(RunEnded, match="the last step failed .ZeroDivisionError"):
        list(late.train())
    watches = {**engine, "watch_prompts": 1}
    with pytest.raises(RewardError, match="ZeroDivisionError"):  # before the first step, for the watched prompts
        build(folder, lambda p, r: 1 / 0, run_dir=tmp_path / "at-first", engine=watches)
    assert "ZeroDivisionError" in RunReader(tmp_path / "at-first").status().cause
    gone = build(folder, run_dir=tmp_path / "gone", engine=engine)
    shutil.rmtree(tmp_path / "gone")
    del gone
    assert "the end of the run is not recorded: The run folder" in capsys.readouterr().err


def test_trackers_and_people_hear_of_the_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Told(Notifier):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(
                *arguments, post=lambda url, message: told.append((url, message["name"], message["event"], message.get("state")))
            )

    tracker = SimpleNamespace(metrics=lambda step, values: told.append((step, "score" in str(values))), samples=len, close=lambda: None)
    monkeypatch.setattr(program_run, "Notifier", Told)
    monkeypatch.setitem(KINDS, "trackio", lambda run: tracker)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    settings: Any = {"ppo": {**PPO, "steps": 1}, "generation": {"response_length": 6}, "engine": {"device": "cpu", "watch_prompts": 0}}
    settings["engine"] |= {"report_to": "trackio", "notify": "lab"}
    given: Any = {"settings": settings, "run_dir": tmp_path / "run", "notify": {"lab": "https://lab.example/told"}}
    for change, error, message in (
        ({"run_dir": None}, ConfigError, "engine.report_to: needs a run folder; give run_dir"),
        ({"notify": None}, ConfigError, "engine.notify: nobody is called lab; give its address"),
        ({"notify": {"lab": "lab.example"}}, ValueError, "notify lab: the address must begin with http"),
    ):
        with pytest.raises(error, match=message):
            build_trainer(model, tokenizer, PROMPTS, by_length, **given | change)
    list(build_trainer(model, tokenizer, PROMPTS, by_length, **given).train())
    assert told == [(1, True), ("https://lab.example/told", "run", "end", "finished")]
    assert RunReader(tmp_path / "run").status().name == "run"  # the page calls it as the message does


@pytest.mark.long
def test_the_ten_lines_of_the_page_run(tmp_path: Path) -> None:
    """Typed as they stand, in a folder that has the bundled world."""
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    (code,) = re.findall(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 11
    assert len(python("-c", code, cwd=tmp_path).splitlines()) == 3
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.long
def test_the_classic_loop_learns() -> None:
    means = [float(line.split()[3].rstrip(",")) for line in python("examples/classic_ppo.py", cwd=ROOT).splitlines()]
    assert len(means) == 10 and sum(means[-3:]) > sum(means[:3]) + 0.3
