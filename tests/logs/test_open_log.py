"""Others' logs as runs, and our own export opened again: compared with the records that went in, field by field."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.logs import apart, index
from rlhf_studio.analysis.logs.apart import open_log_apart, open_log_sent
from rlhf_studio.analysis.logs.open_log import Opened, open_log
from rlhf_studio.analysis.logs.write import lines_of
from rlhf_studio.cli.main import main
from rlhf_studio.config.io import ConfigError
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Probe, ProbeScore, SettingChange, StepEpisodes, StepRecord, WatchRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import NASTY_TEXTS, config, rollout, same, token_record

BOARD = {  # a line as RL Logging Board reads it
    "prompt": "The film was",
    "response": " good.",
    "response_tokens": [" good", "."],
    "logprobs": [-0.5, -0.25],
    "ref_logprobs": [-1.0, -0.5],
    "values": [0.1, 0.2],
    "token_rewards": [0.0, 1.0],
    "reward": 1.0,
    "step": 1,
    "ref_response": " bad.",
    "ref_reward": -1.0,
}


def log(folder: Path, *lines: dict[str, Any] | str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "log.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8")
    return path


def opened(folder: Path, *lines: dict[str, Any] | str, name: str = "") -> tuple[Opened, RunReader]:
    result = open_log(log(folder, *lines), folder / "workspace", name)
    return result, Workspace(folder / "workspace").reader(result.run_id)


def full_run(folder: Path) -> RunReader:
    """A run with everything that a store can hold, in it what is hard to write as text."""
    create_run(folder, config(steps=7, kl_coef=0.07), name="<b>a run</b>")
    lock = EngineLock(folder)
    lock.acquire()
    draw = np.random.default_rng(3)

    def real(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    with RunWriter(folder) as writer:
        writer.set_state("running", device="cpu")
        score = ProbeScore(0, real(2), np.arange(10, dtype=np.int32).reshape(2, 5), real(2, 5), real(2, 5), real(2, 5))
        writer.probes([Probe(0, "probe \ud800", ["a", "\x00"])], [score])
        arrays = {name: real(3) for name in ("logprobs", "ref_logprobs", "kl", "values", "entropy")}
        writer.watched(0, [WatchRecord(0, "watch", "first", -0.1, 0.3, 0.0, True, ["a", "b", "c"], arrays)])
        for step in (1, 2, 4):
            tokens = token_record(4, seed=step, pieces=["\ud800", "\u202e", "a\nb", "</script>"])
            tokens.arrays["ratio"][1:3] = [math.nan, math.inf]
            new = {5: "x", 6: "y\ud800", 7: ""} if step == 1 else {}
            by_token = {name: real(3) for name in ("logprobs", "ref_logprobs", "values")}
            gold = real(2) if step == 2 else None
            ids, ends = np.array([5, 6, 7], np.int32), np.array([True, False])
            reading = np.array([[8, 8], [8, 31]], np.int32) if step == 2 else None
            episodes = StepEpisodes(np.array([2, 1], np.int32), ids, by_token, real(2), gold, {"rm": real(2)}, ends, new, reading)
            writer.commit_step(
                StepRecord(
                    step,
                    {"objective/scores": 0.1 + step, "objective/kl": math.nan if step == 2 else step / 3, "loss/value_avg": -math.inf},
                    [
                        rollout(
                            0, 1 / 3, tokens, parts={"a": 0.1, "b": math.nan}, gold=0.5, prompt=NASTY_TEXTS[2], response=NASTY_TEXTS[3]
                        ),
                        rollout(1, math.nan, None, stopped=False),
                    ],
                    [WatchRecord(0, "watch", f"answer {step}", float(step), None)],
                    [EventRecord("warning", "health", f"step {step}", {"value": math.nan, "list": [1, None]})],
                    episodes,
                    [score],
                    [SettingChange(2, "ppo.kl_coef", 0.1, 0.2)] if step == 2 else [],
                )
            )
        writer.set_state("finished")
    lock.release()
    return RunReader(folder)


def test_our_own_export_opens_as_the_same_run(tmp_path: Path) -> None:
    run = full_run(tmp_path / "workspace" / "runs" / "original")
    path = tmp_path / "run.jsonl"
    path.write_text("".join(lines_of(run)), encoding="ascii")
    result = open_log(path, tmp_path / "workspace")
    again = Workspace(tmp_path / "workspace").reader(result.run_id)
    assert again.config() == run.config() and run.config().ppo.kl_coef == 0.07
    for ask in ("rollout_steps", "watched", "probes", "changes", "non_finite"):
        left, right = getattr(run, ask)(), getattr(again, ask)()
        assert same(_plain(left), _plain(right)) and left, ask
    assert again.metrics_since(0) == run.metrics_since(0) and len(run.metrics_since(0)) == 3
    for step in run.rollout_steps():
        assert same(again.rollouts(step), run.rollouts(step))
        assert [same(again.rollout(step, sample), run.rollout(step, sample)) for sample in (0, 1)] == [True, True]
        assert same(_plain(again.episodes(step)), _plain(run.episodes(step))) and run.episodes(step)

    def diary(reader: RunReader) -> list[Any]:
        return [(event.step, event.level, event.kind, event.text, repr(event.data)) for event in reader.events_since(0)]

    assert diary(again)[:-1] == diary(run) and diary(again)[-1][2] == "import"
    status, origin = again.status(), again.origin()
    assert (status.state, status.step, status.total_steps, status.device) == ("finished", 4, 7, "cpu")
    assert (origin.imported, origin.settings_known) == ("run.jsonl", True)


def _plain(value: Any) -> Any:
    """Tuples as lists, and whole-number keys as they are, for :func:`same`."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else value


def test_a_line_of_rl_logging_board(tmp_path: Path) -> None:
    result, reader = opened(tmp_path, BOARD, {**BOARD, "reward": 3.0}, {**BOARD, "step": 2})
    assert (result.steps, result.rollouts) == (2, 3)
    record = reader.rollout(1, 0)
    assert record.tokens is not None
    assert (record.prompt, record.response, record.score, record.length) == ("The film was", " good.", 1.0, 2)
    assert record.kl == pytest.approx(0.75)
    np.testing.assert_array_equal(record.tokens.arrays["kl"], np.float32([0.5, 0.25]))
    np.testing.assert_array_equal(record.tokens.arrays["rewards"], np.float32([0, 1]))
    unknown = (record.stopped, record.gold, record.parts, record.tokens.arrays.keys() & {"advantages", "entropy", "returns", "ratio"})
    assert unknown == (None, None, {}, set())
    assert math.isnan(record.tokens.gamma) and list(record.tokens.response_ids) == [-1, -1] and record.tokens.top_ids.shape == (2, 0)
    metrics = dict(reader.metrics_since(0))[1]
    assert metrics["objective/scores"] == 2.0 and metrics["objective/scores_std"] == pytest.approx(math.sqrt(2))
    assert metrics["objective/kl"] == pytest.approx(0.75) and "tokens/cut_off" not in metrics and "gold/score" not in metrics
    assert any("ref_response, ref_reward" in note for note in result.notes)
    assert any("settings" in note for note in result.notes) and not reader.origin().settings_known
    assert reader.config().model.policy == "unknown" and reader.status().state == "finished"
    about = {"kind": "run", "model": "gpt2", "settings": {"ppo.kl_coef": 0.3, "engine": {"seed": 5}}}
    assert opened(tmp_path, about, BOARD)[1].origin().settings_given == ["ppo.kl_coef", "engine.seed", "model.policy"]


def test_fields_under_other_names_are_told_with_ours(tmp_path: Path) -> None:
    line = {"step": 1, "prompt": "p", "response_tokens": ["r"], "score": 1, "ref_logprob": [0], "zebra": 1, "\x1b[2J": 1}
    notes = opened(tmp_path, line)[0].notes
    assert notes[-3:] == [
        "Fields that are not read: ref_logprob, score, zebra, ⟨U+001B⟩[2J.",
        "If ref_logprob is the ref_logprobs, call it ref_logprobs.",
        "If score is the reward, call it reward.",
    ]
    both = next(note for note in opened(tmp_path, {**line, "reward": 2})[0].notes if "not read" in note)
    assert ", score, zebra" in both  # the reward is there


def test_steps_in_any_order_and_from_zero(tmp_path: Path) -> None:
    lines = [{"step": step, "prompt": "p", "response": f"r{step}", "length": 1, "reward": float(step)} for step in (2, 0, 1)]
    result, reader = opened(tmp_path, *lines, name="mine")
    assert [reader.rollouts(step)[0].response for step in (1, 2, 3)] == ["r0", "r1", "r2"]
    assert any("from 0" in note for note in result.notes) and reader.status().name == "mine"
    assert reader.rollout(1, 0).tokens is None and math.isnan(reader.rollout(1, 0).kl)


def test_nan_is_kept_as_nan(tmp_path: Path) -> None:
    line = {**BOARD, "values": [math.nan, "-Infinity"], "reward": math.nan, "logprobs": [None, -1]}
    _, reader = opened(tmp_path, line)
    record = reader.rollout(1, 0)
    assert record.tokens is not None and math.isnan(record.score) and math.isnan(record.tokens.arrays["logprobs"][0])
    np.testing.assert_array_equal(record.tokens.arrays["values"], np.float32([math.nan, -math.inf]))


GOOD = {"step": 1, "prompt": "p", "response": "r", "response_tokens": ["r"], "reward": 1}
WRONG: dict[str, tuple[Any, str]] = {
    "not JSON": ("{'step': 1}", "line 2: it is not JSON"),
    "no step": ({**GOOD, "step": None}, "line 2, step: it is missing"),
    "a text as reward": ({**GOOD, "reward": "high"}, "line 2, reward: 'high' is not a number"),
    "an array of another length": ({**GOOD, "values": [1, 2]}, "line 2, values: it has 2 numbers, and this line needs 1"),
    "true in an array": ({**GOOD, "values": [True]}, r"line 2, values\[0\]: True is not a number"),
    "a number beyond float32": ({**GOOD, "values": [1e300]}, "line 2, values: a number is beyond"),
    "arrays without tokens": ({"step": 1, "prompt": "p", "response": "r", "values": [1]}, "line 2, response_tokens: it is missing; values"),
    "no prompt": ({**GOOD, "prompt": None}, "line 2, prompt: it is missing"),
    "uneven rows": ({**GOOD, "response_tokens": ["a", "b"], "top_ids": [[1, 2], [1]]}, "line 2, top_ids: its rows"),
    "the same response twice": ({**GOOD, "sample": 0}, "line 2, sample: step 1 has a response 0 already"),
    "an unknown kind": ({**GOOD, "kind": "x"}, "line 2, kind: 'x' is none of"),
    "a wrong setting": ({"kind": "run", "settings": {"ppo.kl_coef": -5}}, "line 2, settings.ppo.kl_coef"),
    "endlessly deep": ("[" * 100_000, "line 2: its lists and objects lie more than"),
    "a million digits": ('{"step": 1, "reward": ' + "9" * 1_000_000 + "}", "line 2: a number has 1,000,000 digits"),
    "no prompt but a query": (
        {**GOOD, "prompt": None, "query": "p"},
        "line 2, prompt: .*; if that is 'query', call it prompt",
    ),
    "a name that steers the terminal": (
        {"kind": "step", "step": 1, "metrics": {"\x1b[2J": "x"}},
        r"metrics\.⟨U\+001B⟩\[2J: 'x' is not",
    ),
    "a name twice": ('{"step": 1, "step": 2}', "line 2: 'step' stands twice in one object"),
    "not UTF-8": ("\udcff", "line 2: it is not UTF-8"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_line_is_named_and_nothing_is_made(case: str, tmp_path: Path) -> None:
    line, sentence = WRONG[case]
    path = log(tmp_path, GOOD)
    with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    with pytest.raises(ConfigError, match=sentence):
        open_log(path, tmp_path / "workspace")
    assert not (tmp_path / "workspace").exists()


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08\x00 and so on")
    (tmp_path / "nothing").write_text('{"kind": "event", "step": 0, "text": "x"}\n')
    for name, sentence in {
        "empty": "0 bytes",
        "packed": "compressed",
        "nothing": "no training step",
        "gone": "cannot be read",
        ".": "no file with a line in it that ends in",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            open_log(tmp_path / name, tmp_path / "workspace")
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize(
    ("limit", "value", "lines", "sentence"),
    [
        ("MOST_LINE_BYTES", 200, [GOOD, {**GOOD, "response": "r" * 300}], "line 2: the file is too long here: a line of at most 200 bytes"),
        ("MOST_LINES", 2, [GOOD, GOOD, GOOD], "line 3: .*at most 2 lines"),
        ("MOST_STEP_BYTES", 180, [GOOD, {**GOOD, "step": 2}, GOOD, {**GOOD, "step": 2}, GOOD], "line 5, step: the lines of step 1 have"),
        ("MOST_RESPONSES", 2, [GOOD, {**GOOD, "step": 2}, {**GOOD, "step": 3}], "line 3: the file has more than 2 responses"),
        ("MOST_TOKENS_IN_ALL", 5, [BOARD, {**BOARD, "prompt_tokens": ["a", "b"]}], "line 2: the file has more than 5 tokens"),
        ("MOST_PIECES", 2, [{"kind": "pieces", "pieces": {"1": "a", "2": "b", "3": "c"}}, GOOD], "line 1, pieces: .*more than 2 token ids"),
        ("MOST_PIECES_TEXT", 5, [{"kind": "pieces", "pieces": {"1": "abcdef"}}, GOOD], "line 1, pieces: .*5 characters"),
        ("MOST_PROBES", 1, [*({"kind": "probe", "probe": n, "prompt": "p", "pieces": ["a"]} for n in (0, 1)), GOOD], "line 2, probe: .*1"),
    ],
)  # fmt: skip
def test_limits_hold(limit: str, value: int, lines: list[Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(tmp_path / "first", *lines)[0].rollouts
    monkeypatch.setattr(index, limit, value)
    with pytest.raises(ConfigError, match=sentence):
        opened(tmp_path, *lines)
    assert not (tmp_path / "workspace").exists()


def test_numbers_of_responses_that_are_not_given_are_their_places(tmp_path: Path) -> None:
    """Lines of two steps mixed; a number that is given counts as one place."""
    lines = [{**GOOD, "step": step, "response": name} for step, name in ((2, "a"), (1, "b"), (2, "c"), (1, "d"))]
    lines.insert(2, {**GOOD, "step": 2, "response": "e", "sample": 7})
    _, reader = opened(tmp_path, *lines)
    assert [(record.sample, record.response) for record in reader.rollouts(2)] == [(0, "a"), (2, "c"), (7, "e")]
    assert [(record.sample, record.response) for record in reader.rollouts(1)] == [(0, "b"), (1, "d")]
    with pytest.raises(ConfigError, match="line 4, sample: step 2 has a response 2 already"):
        opened(tmp_path, *lines[:2], {**lines[2], "sample": 2}, lines[3])


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """What is kept of 3 MB in 300 lines, counted by Python itself, is a hundred bytes for each line and what loads once."""
    line = json.dumps({**GOOD, "response": "r" * 10_000, "logprobs": [-0.5]})
    path = log(tmp_path, *(line.replace('"step": 1', f'"step": {step}') for step in range(300)))
    tracemalloc.start()
    with path.open("rb") as source:
        indexed = index.index_of(source, lambda first_byte: None)
    in_use, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert indexed.rollouts == 300 and path.stat().st_size > 3_000_000
    assert in_use < 1_000_000, in_use


def test_what_fails_in_the_second_pass_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunWriter, record: StepRecord) -> None:
        raise StoreError("The disk is full", "full")

    monkeypatch.setattr(RunWriter, "commit_step", full)
    with pytest.raises(StoreError, match="disk is full"):
        opened(tmp_path, GOOD)
    assert list((tmp_path / "workspace" / "runs").iterdir()) == []


def test_a_mark_at_the_beginning_blank_lines_and_a_last_line_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps({**GOOD, "response": "ü"}).encode() + b"\n\n  \n" + json.dumps({**GOOD, "step": 2}).encode()
    )
    result = open_log(path, tmp_path / "workspace")
    assert (result.steps, result.rollouts) == (2, 2)
    assert Workspace(tmp_path / "workspace").reader(result.run_id).rollout(1, 0).response == "ü"


def test_a_text_from_a_page_is_opened_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:  # what a process of its own gives back is seen in test_hidden_characters.py
        here.setattr(apart, "open_log_apart", open_log)
        result = open_log_sent(json.dumps(GOOD).encode(), "..\\..\\my run.jsonl", tmp_path, tick=lambda *done: None)
    assert Workspace(tmp_path).status(result.run_id).name == "my run" and (result.steps, result.rollouts) == (1, 1)
    assert Workspace(tmp_path).status(result.run_id).origin.imported == "my run.jsonl"
    with pytest.raises(ConfigError, match="line 1, step: it is missing"):
        open_log_sent(json.dumps({**GOOD, "step": None}).encode(), "x", tmp_path)
    assert len(Workspace(tmp_path).runs()) == 1


@pytest.mark.long  # tests/inputs/test_helper.py sees the limit of such processes
def test_a_file_that_needs_too_much_memory_ends_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three million lists in one line take 190 MB; the child may have 250 MB, of which Python and its libraries take half."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "prompt": "p", "response": "r", "length": 1, "reward": 1, "more": [' + "[]," * 3_000_000 + "[]]}\n")
    monkeypatch.setattr(apart, "MEMORY_BYTES", 250_000_000)
    with pytest.raises(StoreError, match=r"log\.jsonl could not be opened: it needed too much memory"):
        open_log_apart(path, tmp_path / "workspace")
    assert Workspace(tmp_path / "workspace").runs() == []


def test_one_who_waits_can_end_it_and_nothing_is_left(tmp_path: Path) -> None:
    path = log(tmp_path, *(json.dumps({**GOOD, "step": step}) for step in range(1, 30_000)))
    calls: list[int] = []

    def tick() -> None:
        calls.append(1)
        raise StoreError("The app is closing", "state")

    with pytest.raises(StoreError, match="closing"):
        open_log_apart(path, tmp_path / "workspace", tick=tick)
    assert calls == [1]
    runs = tmp_path / "workspace" / "runs"
    assert not runs.exists() or list(runs.iterdir()) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, BOARD)
    assert main(["open-log", str(path), "--name", "theirs", "--workspace", str(tmp_path / "w")]) == 0
    output = capsys.readouterr().out
    (folder,) = (tmp_path / "w" / "runs").iterdir()
    hint = f"To see it on the page, start that with RLHF_STUDIO_WORKSPACE={tmp_path / 'w'} (or --workspace)."
    assert output.startswith(f"run: {folder}\n{hint}\n1 steps, 1 responses\n") and RunReader(folder).status().name == "theirs"
    assert main(["open-log", str(path), "--ppo.steps", "4"]) == 2
    assert main(["open-log", str(log(tmp_path, {**GOOD, "step": "one"}))]) == 2
    assert "line 1, step: 'one' is not a whole number" in capsys.readouterr().err
    half = {"kind": "step", "step": 1, "metrics": {"\ud800": 1}}
    result = open_log(log(tmp_path, half), tmp_path / "half")
    assert main(["runs", "show", str(tmp_path / "half" / "runs" / result.run_id)]) == 0 and "⟨U+D800⟩" in capsys.readouterr().out
    steering = "\x1b[2J"
    assert main(["open-log", str(log(tmp_path, {**BOARD, steering: 1})), "--workspace", str(tmp_path / "w")]) == 0
    assert main(["open-log", str(log(tmp_path, {"kind": "run", "settings": {steering: 1}}))]) == 2
    assert main(["open-log", str(tmp_path / steering)]) == 2
    printed = capsys.readouterr()
    assert "[2J" in printed.out and printed.err.count("[2J") == 2 and "\x1b" not in printed.out + printed.err
