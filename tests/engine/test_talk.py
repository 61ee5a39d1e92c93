"""Talking to a run's policies: the numbers of each token, the engine's own answers, chats, and what cannot be answered."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.child_process.service import Job, Service
from rlhf_studio.cli.main import main
from rlhf_studio.config import NOTHING_ALLOWED, GenerationConfig
from rlhf_studio.engine.compute import lanes
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.jobs.talk import loaded as loaded_module
from rlhf_studio.jobs.talk import loaded_policies
from rlhf_studio.jobs.talk.answer import TypedPrompt, answer, read_prompt
from rlhf_studio.jobs.talk.loaded import MOVED_REFERENCE
from rlhf_studio.jobs.talk.loaded_policies import LoadedPolicies
from rlhf_studio.jobs.talk.server import Conversation
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lab.fork import settings_of
from rlhf_studio.runs.paths import MANIFEST, checkpoint_dir, snapshot_dir
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TEMPLATE = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}w9 {% endif %}"


def trained(folder: Path, name: str = "run", **changes: Any) -> Path:
    """A run of three steps, with checkpoints of step 2 and 3."""
    config = small_config(folder, **{"ppo": {"steps": 3, "learning_rate": 3e-2}, "engine": {"checkpoint_every": 2}, **changes})
    create_run(folder / name, config, name=name, state="loading")
    assert run_engine(folder / name) == 0
    return folder / name


def as_snapshot(run_dir: Path, step: int) -> Path:
    """The run with a checkpoint made into what a snapshot is: the policy alone."""
    folder = snapshot_dir(run_dir, step)
    folder.parent.mkdir(exist_ok=True)
    shutil.move(checkpoint_dir(run_dir, step), folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"] = {name: entry for name, entry in manifest["files"].items() if name.startswith("policy/")}
    for file in folder.iterdir():
        if file.is_file():
            file.unlink()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return run_dir


@pytest.fixture(scope="session")
def run(small_runs: Path) -> Path:
    """Three steps, with a checkpoint of each. Its models are in ``models`` beside it."""
    return small_runs / "ppo"


@pytest.fixture(scope="session")
def lora_run(small_runs: Path) -> Path:
    return small_runs / "ppo-lora"


@pytest.fixture
def held() -> LoadedPolicies:
    return LoadedPolicies(NOTHING_ALLOWED, lambda text, fraction: None)


def ask(prompt: str = "w1 w2 w3", *, seed: int = 5, as_read: bool = False, **settings: Any) -> TypedPrompt:
    return TypedPrompt(prompt, as_read, GenerationConfig(**{"response_length": 8, **settings}), seed)


def plain_logprobs(model: Any, ids: list[int], responses: int, temperature: float) -> torch.Tensor:
    """(responses, V) of a plain forward pass of transformers over prompt and response."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -responses - 1 : -1].double() / temperature
    return logits.log_softmax(dim=-1)


def check(events: list[dict[str, Any]], prompt: list[int], policy: Any, reference: Any, temperature: float = 1.0) -> None:
    begin, *tokens, end = events
    ids = [token["id"] for token in tokens]
    assert len(ids) == end["length"]
    assert [token["reward"] for token in tokens] == pytest.approx([-begin["kl_coef"] * token["kl"] for token in tokens], abs=1e-9)
    assert end["last_reward"] == pytest.approx(tokens[-1]["reward"] + end["score"], abs=1e-6)
    ours = plain_logprobs(policy, prompt + ids, len(ids), temperature)
    theirs = plain_logprobs(reference, prompt + ids, len(ids), temperature)
    for index, token in enumerate(tokens):
        assert token["logprob"] == pytest.approx(float(ours[index, token["id"]]), abs=1e-5)
        assert token["ref_logprob"] == pytest.approx(float(theirs[index, token["id"]]), abs=1e-5)
        assert token["kl"] == pytest.approx(token["logprob"] - token["ref_logprob"], abs=1e-6)  # k1
        assert token["chance"] == pytest.approx(float(ours[index, token["id"]].exp()), abs=1e-5)
        assert token["ref_chance"] == pytest.approx(float(theirs[index, token["id"]].exp()), abs=1e-5)
        assert token["entropy"] == pytest.approx(float(-(ours[index].exp() * ours[index]).sum()), abs=1e-5)
        for top, expected in (("top", ours[index]), ("ref_top", theirs[index])):
            best = expected.topk(5)
            assert [row[2] for row in token[top]] == pytest.approx(best.values.exp().tolist(), abs=1e-5)
            assert token[top][0][0] == int(best.indices[0])
    assert end["kl"] == pytest.approx(float((ours - theirs)[range(len(ids)), ids].sum()), abs=1e-4)


def test_numbers_are_those_of_a_plain_forward_pass(run: Path, held: LoadedPolicies) -> None:
    talker = held.get(run, 3)
    prompt = talker.models.tokenizer("w1 w2 w3").input_ids
    events = list(answer(talker, ask(temperature=0.7, top_k=4)))
    policy = AutoModelForCausalLM.from_pretrained(checkpoint_dir(run, 3) / "policy")
    reference = AutoModelForCausalLM.from_pretrained(run.parent / "models" / "policy")
    check(events, prompt, policy, reference, temperature=0.7)
    assert abs(events[-1]["kl"]) > 1e-3, "the run has learned nothing, so this test could not fail"
    assert all(token["value"] is not None for token in events[1:-1])


def test_adapters_are_merged_and_the_base_is_the_reference(lora_run: Path, held: LoadedPolicies) -> None:
    talker = held.get(lora_run, 2)
    base = AutoModelForCausalLM.from_pretrained(lora_run.parent / "models" / "policy")
    again = AutoModelForCausalLM.from_pretrained(lora_run.parent / "models" / "policy")
    policy = PeftModel.from_pretrained(again, checkpoint_dir(lora_run, 2) / "policy")
    events = list(answer(talker, ask()))
    check(events, talker.models.tokenizer("w1 w2 w3").input_ids, policy, base)
    assert abs(events[-1]["kl"]) > 1e-4


def test_both_sides_of_a_run_share_the_base_and_do_not_disturb_each_other(lora_run: Path, held: LoadedPolicies) -> None:
    alone = [list(answer(held.get(lora_run, step), ask())) for step in (None, 3)]
    left, right = (answer(held.get(lora_run, step), ask()) for step in (None, 3))
    together: list[list[Any]] = [[], []]
    running: list[tuple[int, Iterator[Any]]] = [(0, left), (1, right)]
    while running:
        for side, events in list(running):
            event = next(events, None)
            together[side].append(event) if event else running.remove((side, events))
    assert together == alone
    weights = [next(held.get(lora_run, step).models.policy.model.get_base_model().parameters()) for step in (None, 3)]
    assert weights[0].data_ptr() == weights[1].data_ptr()


def test_the_sides_of_a_pair_keep_their_own_number_formats(tmp_path: Path, held: LoadedPolicies) -> None:
    for dtype in ("float32", "bfloat16"):
        create_run(tmp_path / dtype, small_config(tmp_path, model={"dtype": dtype}), name=dtype, state="loading")
    runs = [tmp_path / "float32", tmp_path / "bfloat16"]
    alone = [list(answer(held.get(run, None), ask())) for run in runs]
    assert alone[0] != alone[1], "both formats give the same numbers, so this test could not fail"
    for order in ((0, 1), (1, 0)):
        sides = [answer(held.get(runs[index], None), ask()) for index in order]
        in_turn = [event for events in itertools.zip_longest(*sides) for event in events]
        assert [[event for event in in_turn[side::2] if event] for side in (0, 1)] == [alone[index] for index in order]
        assert not torch.is_autocast_enabled("cpu")


def test_the_same_seed_gives_the_engines_own_answer(run: Path, held: LoadedPolicies) -> None:
    talker, seed = held.get(run, 3), 7
    settings = GenerationConfig(response_length=8, temperature=0.9, top_k=6, top_p=0.95)
    prompts, _ = read_prompt(talker, TypedPrompt("w4", False, settings, seed))
    tokens, output = generate(talker.models, prompts, settings, torch.Generator().manual_seed(seed), recorded=1)
    events = list(answer(talker, TypedPrompt("w4", False, settings, seed)))
    length = int(tokens.lengths[0])
    assert [token["id"] for token in events[1:-1]] == tokens.response_ids[0, :length].tolist()
    assert [token["logprob"] for token in events[1:-1]] == pytest.approx(output.logprobs[0, :length].tolist(), abs=1e-6)
    assert "".join(token["piece"] for token in events[1:-1]).strip().startswith(events[-1]["response"].strip()[:2])


def test_the_score_is_that_of_the_reward_model(run: Path, held: LoadedPolicies) -> None:
    end = list(answer(held.get(run, 3), ask()))[-1]
    folder = run.parent / "models" / "reward"
    ids = AutoTokenizer.from_pretrained(folder)("w1 w2 w3" + end["response"], return_tensors="pt").input_ids
    with torch.no_grad():
        expected = float(AutoModelForSequenceClassification.from_pretrained(folder)(ids).logits[0, 0])
    assert end["score"] == pytest.approx(expected, abs=1e-4)
    assert end["parts"] == {"reward_model": end["score"]}


def test_rewards_that_are_not_allowed_leave_the_answer(tmp_path: Path, held: LoadedPolicies) -> None:
    (tmp_path / "mine.py").write_text("def score(prompts, responses, **extra): return [0.0] * len(responses)")
    config = small_config(tmp_path, reward={"components": [{"kind": "python", "file": str(tmp_path / "mine.py")}]})
    create_run(tmp_path / "run", config, name="run", state="loading")
    end = list(answer(held.get(tmp_path / "run", None), ask()))[-1]
    assert end["score"] is None and end["no_score"].startswith("There is no score: ") and end["response"]


def test_a_chat_is_written_as_in_training(tmp_path: Path, held: LoadedPolicies) -> None:
    small_config(tmp_path)
    settings = tmp_path / "policy" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": TEMPLATE}))
    create_run(tmp_path / "run", small_config(tmp_path, data={"chat_template": True, "system_text": "w8"}), name="chat", state="loading")
    talker = held.get(tmp_path / "run", None)
    chat = [{"role": "system", "content": "w8"}, {"role": "user", "content": "w1 w2"}]
    expected = talker.models.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    begin = next(answer(talker, ask("w1 w2")))
    assert begin["prompt"] == expected
    assert next(answer(talker, ask(expected, as_read=True)))["prompt"] == expected


def test_a_prompt_is_written_in_the_form_of_training(tmp_path: Path, held: LoadedPolicies) -> None:
    create_run(tmp_path / "run", small_config(tmp_path, data={"prompt_format": "w7 {prompt} w8"}), name="form", state="loading")
    talker = held.get(tmp_path / "run", None)
    assert next(answer(talker, ask("w1 w2")))["prompt"] == "w7 w1 w2 w8"
    assert next(answer(talker, ask("w1 w2", as_read=True)))["prompt"] == "w1 w2"


def test_long_and_strange_prompts(run: Path, held: LoadedPolicies) -> None:
    talker = held.get(run, 3)
    begin = next(answer(talker, ask("w1 " * 33_000)))
    assert begin["prompt_tokens"] == 64 - 8
    assert "so its beginning was left out" in begin["notes"][0]


@pytest.fixture
def talk() -> Callable[..., list[dict[str, Any]]]:
    conversation = Conversation(NOTHING_ALLOWED)

    def say(run: Path, steps: list[Any], prompt: str | None = "w1 w2", is_cancelled: Any = lambda: False, **settings: Any) -> list[Any]:
        events: list[dict[str, Any]] = []
        own = {"response_length": 6, **settings}
        sides = [{"run": str(run), "step": step, "seed": 1, "settings": own} for step in steps]
        conversation.ask({"prompt": prompt, "sides": sides}, events.append, is_cancelled)
        return events

    return say


def test_two_sides_are_answered_in_turn(run: Path, talk: Callable[..., list[dict[str, Any]]]) -> None:
    events = talk(run, [None, 3])
    tokens = [event["side"] for event in events if event["event"] == "token"]
    longer = 0 if tokens.count(0) > tokens.count(1) else 1
    in_turn = [0, 1] * min(tokens.count(0), tokens.count(1))
    assert tokens == in_turn + [longer] * (len(tokens) - len(in_turn)) and len(in_turn) > 1
    json.dumps(events, allow_nan=False)
    assert talk(run, [None, 3], prompt=None) == []  # loaded already


def test_hostile_prompts_are_answered_as_texts(run: Path, talk: Callable[..., list[dict[str, Any]]]) -> None:
    for prompt in ("", "\x00", "<img src=x onerror=alert(1)>", "w1 \ufffd {{x}} ${x}", "\u202ew1"):
        events = talk(run, [3], prompt)
        assert [event["event"] for event in events if event["event"] in ("end", "failed")] == ["end"], prompt


def test_a_checkpoint_that_is_gone_costs_one_side(tmp_path: Path, run: Path, talk: Callable[..., list[dict[str, Any]]]) -> None:
    copied = shutil.copytree(run, tmp_path / "run")
    assert [event for event in talk(copied, [3]) if event["event"] == "end"]
    shutil.rmtree(checkpoint_dir(copied, 3))
    failed, end = (event for event in talk(copied, [3, None]) if event["event"] in ("failed", "end"))
    assert failed["side"] == 0 and failed["error"] == "The checkpoint of step 3 is no longer there; choose another one."
    assert end["side"] == 1


def test_a_snapshot_is_the_checkpoint_without_its_values(tmp_path: Path, run: Path, held: LoadedPolicies) -> None:
    copied = as_snapshot(shutil.copytree(run, tmp_path / "run"), 3)
    (*_, whole), (begin, *_, end) = (list(answer(held.get(folder, 3), ask())) for folder in (run, copied))
    assert end == whole
    assert begin["kl_coef"] == held.get(run, 3).kl_coef and begin["notes"] == []
    values = [[event["value"] for event in answer(held.get(folder, 3), ask()) if event["event"] == "token"] for folder in (run, copied)]
    assert None not in values[0] and set(values[1]) == {None}
    assert main(["generate", str(snapshot_dir(copied, 3)), "--prompt", "w1"]) == 0


def test_a_small_model_answers_with_one_thread(run: Path, held: LoadedPolicies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_module, "THREADS", 2)
    threads = []
    for step, small_below in ((2, lanes.ONE_THREAD_BELOW), (3, 1)):  # the second is not small
        monkeypatch.setattr(lanes, "ONE_THREAD_BELOW", small_below)
        for _ in answer(held.get(run, step), ask(response_length=1)):
            threads.append(torch.get_num_threads())
    torch.set_num_threads(1)
    assert (threads[1], threads[-1]) == (1, 2)


def test_the_kl_coefficient_of_a_snapshot_is_the_recorded_one(tmp_path: Path, held: LoadedPolicies) -> None:
    folder = trained(tmp_path, ppo={"steps": 2, "schedule": "2 ppo.kl_coef 0.5"}, engine={"snapshot_every": 1})
    actual = {step: held.get(folder, step).kl_coef for step in (None, 1, 2)}
    assert actual == {None: RunReader(folder).config().ppo.kl_coef, 1: RunReader(folder).config().ppo.kl_coef, 2: 0.5}
    kept = {step: settings_of(RunReader(folder), snapshot_dir(folder, step)) for step in (1, 2)}
    assert {step: config.ppo.kl_coef for step, config in kept.items()} == {1: actual[1], 2: 0.5} and kept[1] == RunReader(folder).config()


def test_a_reference_that_moved_is_said_of_a_snapshot(tmp_path: Path, held: LoadedPolicies) -> None:
    folder = as_snapshot(trained(tmp_path, ppo={"steps": 2, "reference_ema": 0.5}), 2)
    assert held.get(folder, 2).notes == (MOVED_REFERENCE,) and held.get(folder, None).notes == ()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, run: Path, talk: Callable[..., list[dict[str, Any]]]) -> None:
    copied = shutil.copytree(run, tmp_path / "run")
    weights = checkpoint_dir(copied, 3) / "policy" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    (failed,) = (event for event in talk(copied, [3]) if event["event"] in ("failed", "end"))
    assert "model.safetensors is damaged" in failed["error"]


def test_a_request_can_be_cancelled(run: Path, talk: Callable[..., list[dict[str, Any]]]) -> None:
    calls: list[int] = []
    events = talk(run, [3], is_cancelled=lambda: calls.append(1) or len(calls) > 2, response_length=50)
    assert [event["event"] for event in events][-1] in ("begin", "token")


def test_what_does_not_fit_is_said(run: Path, talk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    events = talk(run, [3], response_length=4000)
    assert "This model reads at most 64 tokens" in events[-1]["error"]
    monkeypatch.setattr(loaded_policies, "_free_bytes", lambda: 1000)
    (failed,) = (event for event in talk(run, [2]) if event["event"] == "failed")
    assert failed["error"].startswith("This model does not fit: it needs about ")


def test_two_pairs_stay_loaded(run: Path, lora_run: Path, held: LoadedPolicies, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []
    original = loaded_policies.load_talker
    monkeypatch.setattr(loaded_policies, "load_talker", lambda start, step: loads.append((start.run_dir, step)) or original(start, step))
    for folder, step in [(run, None), (run, 3), (lora_run, None), (lora_run, 3)] * 2:
        held.get(folder, step)
    assert len(loads) == 4
    held.get(run, 2)  # the oldest one goes
    held.get(run, 3)
    assert len(loads) == 5
    held.get(run, None)
    assert len(loads) == 6


def test_the_command_gives_the_same_answers(run: Path, held: LoadedPolicies, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompts.txt").write_text("w4\n\nw5 w6\n")
    options = ["--temperature", "0.8", "--response-length", "5", "--seed", "2", "--json"]
    assert main(["generate", str(run), "--prompt", "w1", "--prompts", str(tmp_path / "prompts.txt"), *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["typed"] for row in rows] == ["w1", "w4", "w5 w6"]
    for index, row in enumerate(rows):
        expected = list(answer(held.get(run, 3), ask(row["typed"], seed=2 + index, temperature=0.8, response_length=5)))
        assert row["response"] == expected[-1]["response"] and row["score"] == expected[-1]["score"]
        assert [token["logprob"] for token in row["tokens"]] == [token["logprob"] for token in expected[1:-1]]
    assert main(["generate", str(checkpoint_dir(run, 2)), "--prompt", "w1"]) == 0
    assert "kl" in capsys.readouterr().out
    assert main(["generate", str(run), "--start", "--prompt", "w1"]) == 0


def test_bad_input_to_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, part in (
        ([], "give --prompt TEXT, or --prompts FILE"),
        (["--prompt", "x", "--temperature", "0"], "generation.temperature"),
        (["--prompt", "x", "--seed", "-1"], "engine.seed"),
        (["--prompts", "/no/such/file"], "there is no file"),
        (["--prompt", "\ud800"], "not valid UTF-8"),
    ):
        assert main(["generate", str(run), *arguments]) == 2
        assert part in capsys.readouterr().err


@pytest.mark.long
def test_the_process_answers_and_can_be_cancelled(run: Path) -> None:
    service = Service("talk")

    def ask(length: int) -> Job:
        sides = [{"run": str(run), "step": step, "seed": 1, "settings": {"response_length": length}} for step in (None, 3)]
        return service.submit({"prompt": "w1", "sides": sides})

    try:
        answered, cancelled = ask(6), ask(60)
        assert answered.ended.wait(120)
        wait_until(lambda: cancelled.last("token"), 60)
        service.cancel(cancelled)
        assert cancelled.ended.wait(60)
    finally:
        service.close()
    assert {event["side"] for event in answered.events if event["event"] == "end"} == {0, 1}
    assert cancelled.last("end") is None and cancelled.events[-1] == {"event": "stopped"}
