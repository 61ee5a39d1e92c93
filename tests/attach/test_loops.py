"""A loop of one's own: what a step records, what is refused at the door, and what a kill leaves."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.attach import Studio, recording, session
from rlhf_studio.attach.online import _over_all
from rlhf_studio.attach.steps import Response, TokenTexts, step_record
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.runs import paths
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import refuse_only_read
from rlhf_studio.runs.launch import force_stop
from rlhf_studio.runs.show import show_text, show_values
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.live.details import Details
from tests.attach.stand_in import Letters, only_run
from tests.waiting import wait_until

IDS = [[3, 4, 1], [5, 1]]


@pytest.mark.filterwarnings("error")
def test_what_a_step_gives_is_recorded_and_nothing_else(tmp_path: Path) -> None:
    padded = torch.tensor([[-0.5, -0.25, -0.125], [-1.0, -2.0, 9.0]], dtype=torch.bfloat16, requires_grad=True)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    with Studio(run="mine", workspace=tmp_path, tokenizer=Letters(), config={"ppo.kl_coef": 0.2}, total_steps=9) as studio:
        studio.step(
            prompts=["a", "b"], prompt_ids=[[2], [3]], response_ids=IDS, response_mask=mask, logprobs=padded,
            ref_logprobs=[np.zeros(3), np.array([-1.0, -1.0])], rewards={"long": [1.0, None], "good": torch.tensor([0.5, 0.25])},
            advantages=[1.0, -1.0], stopped=torch.tensor([True, False]),
            metrics={"lr": np.float32(0.5), "own/number": 3, "loss/policy_avg": padded.sum()},
        )  # fmt: skip
        studio.step(responses=["one two", "three"], rewards=[1, 2], step=5)
        studio.step(responses=["three"], step=6)
        studio.step(response_tokens=[["x", "y"]], advantages=[[0.5, -0.5]], values=[[1, 2]], step=7)
        studio.step(metrics={"objective/kl": float("nan")})
    reader = only_run(tmp_path)
    status, metrics = reader.status(), dict(reader.metrics_since(0))
    assert (status.state, status.step, status.total_steps, status.name) == ("finished", 8, 9, "mine")
    assert reader.origin().controls == [] and reader.origin().settings_given == ["ppo.kl_coef"]
    first = reader.rollout(1, 0)
    assert first.tokens is not None
    assert (first.prompt, first.response, first.parts, first.score, first.kl) == ("a", "bc", {"long": 1.0, "good": 0.5}, 1.5, -0.875)
    assert first.tokens.response_pieces == ["b", "c", "."] and first.tokens.response_ids.tolist() == IDS[0]
    assert first.tokens.kl_coef == pytest.approx(0.2)
    assert set(first.tokens.arrays) == {"logprobs", "ref_logprobs", "kl", "advantages", "whitened_advantages"}
    second = reader.rollout(1, 1)
    assert second.tokens is not None and second.tokens.arrays["logprobs"].tolist() == [-1.0, -2.0]
    assert second.parts == {"good": 0.25} and second.stopped is False
    assert metrics[1]["own/number"] == 3 and metrics[1]["lr"] == 0.5 and metrics[1]["tokens/cut_off"] == 0.5
    assert metrics[1]["reward/good"] == 0.375 and metrics[1]["objective/kl"] == pytest.approx((-0.875 - 1.0) / 2)
    text_alone = reader.rollout(5, 0)
    assert text_alone.score == 1.0 and text_alone.stopped is None and np.isnan(text_alone.kl) and text_alone.length == 2
    assert text_alone.tokens is not None and text_alone.tokens.response_pieces == ["one", " two"] and not text_alone.tokens.arrays
    assert [event.step for event in reader.events_since(0) if "lengths count words" in event.text] == [5]
    assert "objective/kl" not in metrics[5] and "gold/score" not in metrics[5]
    assert "tokens/response_length" not in metrics[5] and reader.origin().unit == "tokens"  # those of step 1 count tokens
    third = reader.rollout(7, 0)
    assert third.tokens is not None and third.tokens.response_ids.tolist() == [-1, -1]
    assert metrics[8]["objective/kl"] is None
    assert {"time/total", "time/elapsed"} <= metrics[8].keys() and "objective/scores" not in metrics[8]
    not_checked = {group.cause: group.titles for group in diagnose(reader).verdict.not_checked}
    assert "the KL stays far above its target" in not_checked["Settings not all known"]
    missing = not_checked["Numbers not recorded"]
    assert "one phrase is taking over" in missing and "no response ends by itself" not in missing
    shown = json.loads(Details().read(reader, "run", "settings", 0, 0, reader.status()))["known"]
    assert shown == {"ppo.kl_coef": 0.2}  # no default that nobody chose


def test_lengths_of_texts_alone_count_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/me/my_loop.py"])
    with Studio(workspace=tmp_path) as studio:
        studio.step(responses=["one two", "one two three four"], rewards=[0.0, 1.0])
    with pytest.raises(RuntimeError, match="is over, and its run has ended: call studio.step inside the block"):
        studio.step(responses=["one two"], rewards=[0.0])  # no second run begins in silence
    reader = only_run(tmp_path)
    assert reader.origin().unit == "words" and dict(reader.metrics_since(0))[1]["tokens/response_length"] == 3.0
    assert "lengths      in words" in show_text(show_values(reader.run_dir))
    assert (reader.status().name, reader.origin().told) == ("Training loop (my_loop.py)", "recorded from my_loop.py")


def test_the_kl_of_tokens_is_the_one_that_the_loop_uses(tmp_path: Path) -> None:
    logprobs, reference = np.array([[-1.0, -2.0, -0.5]], np.float32), np.array([[-1.5, -1.0, -0.5]], np.float32)
    with Studio(workspace=tmp_path, config={"ppo.kl_estimator": "k2"}) as studio:
        studio.step(response_tokens=[["a", "b", "c"]], logprobs=logprobs, ref_logprobs=reference)
    stored = only_run(tmp_path).rollout(1, 0).tokens
    own = Response(response_pieces=["a", "b", "c"], arrays={"logprobs": logprobs[0], "ref_logprobs": reference[0]})
    for estimator in ("k1", "k2", "k3", "abs", "full"):
        tokens = step_record(1, [own], {}, TokenTexts(None), most=1, estimator=estimator).rollouts[0].tokens
        assert tokens is not None and stored is not None
        if estimator == "k2":
            assert tokens.arrays["kl"].tolist() == stored.arrays["kl"].tolist()
        if estimator == "full":  # nobody has the whole distributions
            assert "kl" not in tokens.arrays
        else:
            expected = kl_per_token(torch.tensor(logprobs), torch.tensor(reference), estimator)[0].tolist()
            assert tokens.arrays["kl"].tolist() == pytest.approx(expected), estimator


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rewards": [1.0]}, "give the responses too"),
        ({"responses": ["a"], "prompts": "a"}, "prompts must be a list of texts"),
        ({"responses": ["a", "b"], "prompts": ["a"]}, "prompts must be 2 texts, one for each response, and there are 1"),
        ({"response_ids": IDS, "logprobs": [[-1.0, -2.0], [-1.0, -1.0]]}, r"logprobs\[0\] has 2 numbers, and the response has 3 tokens"),
        ({"response_ids": [[0.5]]}, r"response_ids\[0\] must be token ids"),
        ({"responses": ["a"], "logprobs": [[-1.0]]}, "give response_ids or response_tokens too"),
        ({"responses": ["a"], "advantages": [1.0]}, "give response_ids or response_tokens too"),
        ({"response_ids": IDS, "rewards": {"good": [1.0]}}, r"rewards\['good'\] must be 2 numbers"),
        ({"response_ids": IDS, "rewards": ["a", "b"]}, "rewards must be numbers, one for each response"),
        ({"response_ids": IDS, "stopped": [True]}, "stopped must be true or false for each of the 2 responses"),
        ({"response_ids": IDS, "response_tokens": [["a"], ["b", "c"]]}, r"response_tokens\[0\] has 1 texts, and the response has 3"),
        ({"metrics": {"lr": "high"}}, r"metrics\['lr'\] must be a number"),
        ({"response_ids": [[3, 4, 1, 0, 0], [3] * 5]}, r"response_ids\[0\] has padding \(the token 0\): give response_mask"),
        ({"responses": ["a"], "prompt_ids": [[0, 0, 3]]}, "give prompt_mask"),
        ({}, "a step needs something to record"),
        ({"metrics": {}}, "a step needs something to record"),
        ({"metrics": {}, "step": 0}, "step must be a whole number above the last one, 0; it is 0"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_recorded(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    tokenizer = Letters()
    tokenizer.pad_token_id = 0
    with Studio(workspace=tmp_path, tokenizer=tokenizer) as studio:
        with pytest.raises(ValueError, match=says):
            studio.step(**given)
        assert not (tmp_path / paths.RUNS).exists()
        studio.step(response_ids=[[3, 0], [0]])
    assert only_run(tmp_path).status().step == 1  # what was refused takes no number


def test_a_studio_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    for given, says in (
        ({"run": "x" * 121}, "at most 120 characters"),
        ({"run": "a\u202eb"}, "no character that nobody sees"),
        ({"controls": ["pause"]}, "controls can be stop and checkpoint"),
        ({"tokenizer": object()}, "must have a method decode"),
        ({"config": {"ppo.klcoef": 1}}, "there is no setting ppo.klcoef; did you mean ppo.kl_coef?"),
    ):
        with pytest.raises(ValueError, match=says):
            Studio(**given)
    with pytest.raises(ValueError, match="use step instead"):
        Studio(workspace=tmp_path).watch(object())
    with pytest.raises(ValueError, match=r"name 'stop' in Studio"):
        Studio(workspace=tmp_path).asked("stop")


def test_a_loop_hears_what_people_ask_for_and_refuses_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LOOK_SECONDS", 0.01)
    with Studio(workspace=tmp_path, controls=["stop"]) as studio:
        studio.step(metrics={"lr": 1.0})
        wait_until(lambda: only_run(tmp_path).status().state == "running")
        assert not studio.asked("stop")
        send_command(only_run(tmp_path).run_dir, "pause")
        send_command(only_run(tmp_path).run_dir, "stop")
        with pytest.raises(StoreError, match="not ours to end"):
            force_stop(only_run(tmp_path).run_dir, "an operator")
        with pytest.raises(StoreError, match="outside this app"):
            refuse_only_read(only_run(tmp_path))
        wait_until(lambda: studio.asked("stop"))
    reader = only_run(tmp_path)
    assert reader.status().state == "stopped"
    assert any("does not carry out the request 'pause'" in event.text for event in reader.events_since(0))


KILLED = """
import sys
import threading
from rlhf_studio.attach import Studio
assert not {"torch", "transformers", "gradio"} & sys.modules.keys()
studio = Studio(workspace=sys.argv[1])
for step in range(1, 1000):
    studio.step(response_tokens=[["a"]], rewards=[step])
    print(step, flush=True)
    if not sys.stdin.readline():
        break
"""


def test_a_kill_leaves_what_was_committed_and_torch_is_never_loaded(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdin is not None and child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
        child.stdin.write("\n")
        child.stdin.flush()
    wait_until(lambda: (tmp_path / paths.RUNS).exists() and only_run(tmp_path).status().step >= 3)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    reader = only_run(tmp_path)
    assert reader.status().state == "interrupted" and "The program ended without saying why" in reader.status().cause
    assert [metrics["objective/scores"] for _, metrics in reader.metrics_since(0)][:3] == [1.0, 2.0, 3.0]
    command = [sys.executable, "-c", KILLED, str(tmp_path / "to its end")]
    subprocess.run(command, input="\n", text=True, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    closed_by_nobody = only_run(tmp_path / "to its end")
    ended, shown = closed_by_nobody.status(), show_text(show_values(closed_by_nobody.run_dir))
    assert "step         2\n" in shown  # nobody knows of how many
    assert (ended.state, ended.step) == ("interrupted", 2) and "without closing the recording; use `with Studio(" in ended.cause


def test_errors_of_means_are_those_of_a_log_and_of_all_responses(tmp_path: Path) -> None:
    """Two responses to each of four prompts, in a loop and in a log; 300, of which 256 are kept; and those of two processes."""
    draw = np.random.default_rng(0)
    prompts, rewards, gold = [f"p{row // 2}" for row in range(300)], draw.normal(size=300), draw.normal(size=300)
    with Studio(run="mine", workspace=tmp_path) as studio:
        for count in (8, 300):
            studio.step(prompts=prompts[:count], responses=["x"] * count, rewards=rewards[:count], gold=gold[:count])
    lines = [
        {"step": 1, "prompt": prompts[row], "response": "x", "reward": rewards[row], "gold": gold[row]}
        for row in range(8)
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ours = dict(only_run(tmp_path).metrics_since(0))
    logged = dict(Workspace(tmp_path).reader(open_log(tmp_path / "log.jsonl", tmp_path).run_id).metrics_since(0))
    shared = {name for name in logged[1] if name.startswith(("objective/scores", "gold/"))}
    assert {"objective/scores_se", "gold/score_se"} < shared
    assert {name: ours[1][name] for name in shared} == pytest.approx({name: logged[1][name] for name in shared}, rel=1e-6)
    by_prompt = np.std(rewards.reshape(-1, 2).mean(axis=1), ddof=1) / np.sqrt(150)
    assert ours[2]["objective/scores_se"] == pytest.approx(by_prompt, rel=1e-6)

    own = [Response(prompt=prompts[row], score=rewards[row]) for row in range(8)]  # of the first of two processes, 8 responses each
    for each, error in ((2, np.std(rewards[:16].reshape(-1, 2).mean(axis=1), ddof=1) / np.sqrt(8)), (3, None)):
        both = _over_all(rewards[:16, None], ["reward"], each)
        metrics = step_record(1, own, both, TokenTexts(None), most=8).metrics
        assert metrics["objective/scores"] == pytest.approx(rewards[:16].mean())
        assert metrics.get("objective/scores_se") == (None if error is None else pytest.approx(error))


class Speechless(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


LEFT = """
import sys
from rlhf_studio.attach import Studio
studio = Studio(workspace=sys.argv[1])
with_block = "with" in sys.argv[2]
def train():
    studio.step(responses=["a"])
    {end}
try:
    if with_block:
        with studio:
            train()
    train()
except StopIteration:
    pass
"""


@pytest.mark.parametrize(
    ("end", "inside", "outside", "said"),
    [
        ("sys.exit(0)", "finished", "interrupted", "without closing the recording"),
        ("sys.exit('no data')", "failed", "failed", "The program ended itself: no data"),
        ("sys.exit(2)", "failed", "failed", "The program ended itself with exit code 2"),
        ("raise SystemExit('no data')", "failed", "interrupted", "without closing the recording"),  # outside: Python tells nobody
        ("raise KeyboardInterrupt", "stopped", "stopped", "Stopped from the keyboard"),
        ("raise OSError('no data')", "failed", "failed", "The training ended with OSError: no data"),
    ],
)
def test_a_program_that_leaves_its_loop_ends_as_it_says(tmp_path: Path, end: str, inside: str, outside: str, said: str) -> None:
    for way, state in (("with", inside), ("alone", outside)):
        subprocess.run([sys.executable, "-c", LEFT.format(end=end), str(tmp_path / way), way], capture_output=True, check=False)
        status = only_run(tmp_path / way).status()
        assert status.state == state, (way, status.cause)
        assert way == "with" or said in status.cause


def test_an_exit_that_the_program_catches_has_not_ended_it(tmp_path: Path) -> None:
    program = f"{LEFT.format(end='raise StopIteration')}\ntry: sys.exit(3)\nexcept SystemExit: pass"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), "alone"], capture_output=True, check=True)
    status = only_run(tmp_path).status()
    assert status.state == "interrupted" and "without closing" in status.cause, done.stderr


def test_an_error_whose_text_fails_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Speechless), Studio(workspace=tmp_path) as studio:
        studio.step(metrics={"lr": 1.0})
        raise Speechless
    assert only_run(tmp_path).status().cause == "The training ended with Speechless: Speechless"

    def fail(*given: Any, **more: Any) -> None:
        raise Speechless

    monkeypatch.setattr(session, "create_run", fail)
    Studio(workspace=tmp_path).step(metrics={"lr": 1.0})


def test_a_slow_disk_holds_the_training_up_once_and_the_runs_end_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, turns, holds = threading.Event(), threading.Semaphore(0), list[float]()
    commit, put = RunWriter.commit_step, queue.Queue.put

    def slow(writer: RunWriter, record: Any) -> None:
        begun.set()
        turns.acquire(timeout=10)
        commit(writer, record)

    def counted(self: Any, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if timeout == recording.PATIENCE and begun.is_set() and self.full():
            holds.append(timeout)
        put(self, item, block, timeout)

    monkeypatch.setattr(recording, "MOST_WAITING", 4)
    monkeypatch.setattr(recording, "PATIENCE", 0.001)
    monkeypatch.setattr(RunWriter, "commit_step", slow)
    monkeypatch.setattr(queue.Queue, "put", counted)
    with Studio(workspace=tmp_path) as studio:
        studio.step(metrics={"lr": 1.0})
        assert begun.wait(10)
        jobs = studio._session.recording._jobs  # type: ignore[union-attr]
        for _ in range(6):
            studio.step(metrics={"lr": 1.0})
        for _ in range(3):  # a slot becomes free, is taken, and the next step has none
            turns.release()
            wait_until(lambda: not jobs.full())
            studio.step(metrics={"lr": 1.0})
            studio.step(metrics={"lr": 1.0})
        turns.release(99)
    assert len(holds) == 1 and only_run(tmp_path).status().state == "finished"


class Uncopied(Letters):
    def __deepcopy__(self, memo: Any) -> None:
        raise TypeError("cannot pickle 'module' object")


def test_what_cannot_be_used_leaves_no_run_that_never_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Studio(workspace=tmp_path, tokenizer=Uncopied(), config={"ppo.kl_coef": "x", "ppo.cliprange": 0.1}) as studio:
        studio.step(response_ids=IDS, rewards=[1.0, 2.0])
        studio.step(response_tokens=[["a"]], rewards=[1.0])
    reader = only_run(tmp_path)
    assert (reader.status().state, reader.status().step) == ("finished", 2)
    assert reader.origin().settings_given == ["ppo.cliprange"] and reader.rollout(1, 0).score == 1.0
    (said,) = [event.text for event in reader.events_since(0) if event.level == "warning"]
    assert "cannot be copied" in said and len(caplog.records) == 1
    tokens = reader.rollout(2, 0).tokens
    assert tokens is not None and np.isnan(tokens.kl_coef) and tokens.response_pieces == ["a"]
