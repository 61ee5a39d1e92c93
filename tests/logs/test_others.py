"""Rollouts as other programs write them, opened, and followed while they grow."""

from __future__ import annotations

import errno
import json
import math
import re
import threading
import tracemalloc
from datetime import datetime
from decimal import Decimal
from io import BufferedReader, FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rlhf_studio.analysis.compare import compare
from rlhf_studio.analysis.logs import follow, sources
from rlhf_studio.analysis.logs.cutting import Tokens
from rlhf_studio.analysis.logs.follow import Follower, follow_log
from rlhf_studio.analysis.logs.forms import FORMS
from rlhf_studio.analysis.logs.open_log import Opened, open_log
from rlhf_studio.analysis.logs.sources import GrowingFile
from rlhf_studio.analysis.logs.translate import Translation
from rlhf_studio.config.io import ConfigError
from rlhf_studio.jobs.export.curves import curves_of
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.live.responses import tokens_payload
from tests.logs.writers import WRITERS
from tests.runs.store_helpers import same


def opened(path: Path, workspace: Path, **more: Any) -> tuple[Opened, RunReader]:
    result = open_log(path, workspace, **more)
    return result, Workspace(workspace).reader(result.run_id)


def written(form: str, folder: Path, *steps: int) -> Path:
    for step in steps:
        WRITERS[form](folder, step)
    return folder


def records(reader: RunReader) -> list[tuple[int, RolloutRecord]]:
    return [(step, reader.rollout(step, row.sample)) for step in reader.rollout_steps() for row in reader.rollouts(step)]


@pytest.mark.parametrize("form", WRITERS)
def test_a_followed_log_is_the_same_run_as_one_that_was_opened(form: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = Follower(log, tmp_path / "followed")
    assert follower.poll(0.0) == []  # it is not there yet
    for now, step in enumerate((1, 2, 3, 12)):
        written(form, log, step)
        stored = follower.poll(10.0 * now)
        assert stored == ([] if now == 0 else [(1, 2, 3, 12)[now - 1]])
    assert follower.run_dir is not None
    running = RunReader(follower.run_dir)
    assert running.status().state == "running" and running.status().step == 3
    assert follower.poll(34.0) == [] and follower.poll(36.0) == [12]  # nothing new for long enough
    follower.close()
    _, whole = opened(log, tmp_path / "opened")
    pairs = zip(records(running), records(whole), strict=True)
    assert all(step == other and same(record, original) for (step, record), (other, original) in pairs)
    assert running.metrics_since(0) == whole.metrics_since(0) and running.metrics_since(0)
    assert running.rollout_steps() == whole.rollout_steps() and running.status().state == "finished"
    assert {event.level for event in running.events_since(0)} == {"info"} and running.origin().controls == ["stop"]
    assert running.origin().kind == "log" and running.origin().told == f"{whole.origin().told} as it grows"


def first(form: str, tmp_path: Path, **more: Any) -> tuple[RolloutRecord, dict[str, float], list[str]]:
    """The second response of step 2, the metrics of step 2, and the notes."""
    result, reader = opened(written(form, tmp_path / "log", 1, 2), tmp_path / "w", **more)
    return reader.rollout(2, 1), dict(reader.metrics_since(0))[2], result.notes


def test_verl(tmp_path: Path) -> None:
    record, metrics, notes = first("verl", tmp_path)
    assert (record.prompt, record.response, record.score) == ("user\nWhat is 1+1?\nassistant\n", "It is 1, 1 or so.", 1.0)
    assert record.parts == {"acc": 1.0} and metrics["objective/scores"] == metrics["reward/acc"] == 0.5 and "objective/kl" not in metrics
    assert record.tokens is not None and record.tokens.response_pieces == ["It", " is", " 1,", " 1", " or", " so."]
    unknown = (record.stopped, record.gold, list(record.tokens.arrays), math.isnan(record.kl), set(record.tokens.response_ids))
    assert unknown == (None, None, [], True, {-1})
    assert any("cut at words" in note for note in notes) and "Fields that are not read: gts, pred." in notes
    (run,) = (tmp_path / "w" / "runs").iterdir()
    drawn = {curve.name: curve.unit for curve in curves_of(story_of(RunReader(run)).series, RunReader(run).origin().unit)}
    assert drawn["tokens/response_length"] == "words"  # what the report says of it


def test_trl(tmp_path: Path) -> None:
    record, metrics, notes = first("trl", tmp_path)
    assert (record.prompt, record.response) == ("system: Be brief.\nuser: What is 1+1?", "It is 1, 1 or so.")
    assert math.isnan(record.score) and record.parts == {"accuracy_reward": 1.0, "length_reward": 0.5}
    assert record.tokens is not None
    np.testing.assert_allclose(record.tokens.arrays["advantages"], [2**-0.5] * 6, rtol=1e-3)
    (run,) = (tmp_path / "w" / "runs").iterdir()
    assert RunReader(run).origin().told == "read from log (TRL)"
    assert any("The reward is unknown" in note and "accuracy_reward, length_reward" in note for note in notes)
    # a curve for each column, as attach has one for each reward function
    curves = {name: value for name, value in metrics.items() if name.startswith("reward/")}
    assert "objective/scores" not in metrics and curves == {"reward/accuracy_reward": 0.5, "reward/length_reward": 0.5}


def test_trl_with_one_column_and_with_several(tmp_path: Path) -> None:
    """With several the weights are not in the file, and a logged column of numbers looks like a reward."""
    import pandas as pd

    more = {"step": [5, 5], "prompt": ["p", "p"], "completion": ["a", "b"], "advantage": [-1.0, 1.0], "right": [0.0, 1.0]}
    pd.DataFrame(more).to_parquet(tmp_path / "one.parquet")
    _, reader = opened(tmp_path / "one.parquet", tmp_path / "w")
    assert reader.rollout(5, 1).score == 1.0 and dict(reader.metrics_since(0))[5]["objective/scores"] == 0.5
    pd.DataFrame({**more, "difficulty": [4.0, 4.0]}).to_parquet(tmp_path / "two.parquet")
    result, reader = opened(tmp_path / "two.parquet", tmp_path / "w")
    assert math.isnan(reader.rollout(5, 1).score) and reader.rollout(5, 1).parts == {"right": 1.0, "difficulty": 4.0}
    assert "objective/scores" not in dict(reader.metrics_since(0))[5]
    assert any("The reward is unknown" in note for note in result.notes)
    result, reader = opened(tmp_path / "two.parquet", tmp_path / "w", weights="2,0.5")
    scores = [reader.rollout(5, row).score for row in (0, 1)]
    assert scores == [2.0, 4.0] and any("2 × right + 0.5 × difficulty" in note for note in result.notes)
    assert reader.origin().reward == "2 × right + 0.5 × difficulty"
    _, other = opened(tmp_path / "two.parquet", tmp_path / "w", weights="1,0")
    compared = compare([reader, other], ["doubled", "plain"])
    assert compared.verdict.startswith("These runs were scored differently, so their scores cannot be compared.")
    assert compared.verdict.endswith("reward as a sum (2 × right + 0.5 × difficulty against 1 × right + 0 × difficulty).")
    assert next(row.values for row in compared.settings if row.setting == "reward.weights")[1] == "1 × right + 0 × difficulty"
    for weights, sentence in {"1": "for 2 columns of numbers \\(right, difficulty\\)", "1,x": "numbers with commas"}.items():
        with pytest.raises(ConfigError, match=sentence):
            open_log(tmp_path / "two.parquet", tmp_path / "w", weights=weights)


@pytest.mark.parametrize("weights", ["", "2,0.5"])
def test_a_reward_function_that_says_nothing_of_some_responses_is_a_column_all_the_same(tmp_path: Path, weights: str) -> None:
    """TRL writes None where a function does not apply: of a whole step, or of its first response."""
    import pandas as pd

    (tmp_path / "log").mkdir()
    given = {"prompt": ["p", "p"], "completion": ["a", "b"], "advantage": [-1.0, 1.0], "right": [1.0, 2.0]}
    for step, form in ((1, [None, None]), (2, [None, 10.0])):
        frame = pd.DataFrame({"step": [step] * 2, **given, "form": pd.Series(form, dtype="float64")})
        frame.to_parquet(tmp_path / "log" / f"completions_{step:05d}.parquet")
    _, reader = opened(tmp_path / "log", tmp_path / "w", weights=weights)
    scores = [reader.rollout(step, row).score for step in (1, 2) for row in (0, 1)]
    np.testing.assert_array_equal(scores, [2.0, 4.0, 2.0, 9.0] if weights else [math.nan] * 4)


def test_prime_rl(tmp_path: Path) -> None:
    record, _, notes = first("prime_rl", tmp_path)
    tokens = record.tokens
    assert tokens is not None and (list(tokens.prompt_ids), list(tokens.response_ids)) == ([40, 41], [50, 51, 52])
    assert (record.score, tokens.response_pieces, math.isnan(record.kl)) == (1.0, ["[50]", "[51]", "[52]"], True)
    np.testing.assert_array_equal(tokens.arrays["logprobs"], np.float32([-0.5, math.nan, -0.25]))  # the second is not the policy's
    np.testing.assert_array_equal(tokens.arrays["new_logprobs"], np.float32([-0.75, math.nan, -0.25]))
    np.testing.assert_array_equal(tokens.arrays["advantages"], np.float32([0.5, math.nan, 0.5]))
    np.testing.assert_array_equal(tokens.arrays["clipped"], np.float32([1, math.nan, 0]))
    assert any("not the policy's own" in note for note in notes) and not any("losses_" in note for note in notes)


def test_tinker(tmp_path: Path) -> None:
    record, metrics, notes = first("tinker", tmp_path)
    assert (record.prompt, record.response, record.score, record.length) == ("What is 1+1?", "It is 1, 1 or so.", 1.0, 9)
    assert record.parts == {"format": 1.0, "correct": 1.0, "final_reward": 0.0} and record.stopped is True
    assert metrics["tokens/cut_off"] == 0.5 and metrics["tokens/response_length"] == 9.0
    assert any("split train" in note for note in notes) and any("passed over: config.json, metrics.jsonl" in note for note in notes)
    payload = json.loads(tokens_payload(1, record))  # the text is cut into six words
    assert payload["length"] == 9 and len(payload["tokens"]["response_pieces"]) == 6


def test_tinker_without_texts(tmp_path: Path) -> None:
    path = written("tinker", tmp_path / "log", 0) / "iteration_000000" / "train_rollout_summaries.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        del line["steps"][0]["trace"], line["steps"][0]["stop_reason"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result, reader = opened(path, tmp_path / "w")
    record = reader.rollout(1, 3)
    assert (record.prompt, record.response, record.length, record.tokens) == ("(group 1: problems)", "(no text)", 9, None)
    assert record.stopped is None and any("no texts" in note for note in result.notes)


def test_openrlhf(tmp_path: Path) -> None:
    result, reader = opened(written("openrlhf", tmp_path / "log", 1, 2, 3), tmp_path / "w")
    assert (result.steps, result.rollouts) == (3, 3)  # each file repeats the rows before
    assert reader.rollout(3, 0).response == "What is 1+1? It is 1, 1 or so." and reader.rollout(3, 0).score == 1.0
    assert any("the prompt is unknown" in note for note in result.notes)


def test_rl_logging_board(tmp_path: Path) -> None:
    record, metrics, notes = first("board", tmp_path)
    assert (record.prompt, record.score, record.length) == ("What is 1+1?", 1.0, 6) and metrics["objective/scores"] == 0.5
    assert any("Fields that are not read: ref_response, ref_reward." in note for note in notes)
    tokens, _, notes = first("board_tokens", tmp_path / "tokens")
    assert tokens.tokens is not None and tokens.tokens.response_pieces == ["道德", "似", "梅", "。", "<EOD>"]
    assert tokens.kl == pytest.approx(-4.711 + 4.71875 - 0.79 + 0.80078 - 4.15977 + 4.15625, abs=1e-3)
    assert any("padding" in note for note in notes)


def test_a_tokenizer_cuts_texts_and_gives_ids_their_texts(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate([*alphabet, "Ġor"])}, merges=[]))
    own.pre_tokenizer, own.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    (tmp_path / "model").mkdir()
    own.save(str(tmp_path / "model" / "tokenizer.json"))
    record, metrics, notes = first("verl", tmp_path, tokenizer=str(tmp_path / "model"))
    assert record.tokens is not None and record.tokens.response_pieces == list("It is 1, 1 or so.")
    assert list(record.tokens.response_ids) == [own.token_to_id(letter) for letter in "ItĠisĠ1,Ġ1ĠorĠso."]
    assert metrics["tokens/response_length"] == 17 and any("cut by the tokenizer of model" in note for note in notes)
    ids, _, _ = first("prime_rl", tmp_path / "ids", tokenizer=str(tmp_path / "model" / "tokenizer.json"))
    assert ids.response == own.decode([50, 51, 52]) and ids.prompt == own.decode([40, 41])
    for model, sentence in {str(tmp_path): "no tokenizer.json", "a b": "neither a folder nor the name of a model"}.items():
        with pytest.raises(ConfigError, match=sentence):
            Translation(tmp_path, model)


VERL = {"input": "p", "output": "r", "gts": "", "score": 1.0, "step": 1}
REFUSED: dict[str, tuple[str, str]] = {
    "a column renamed": (
        json.dumps({"input": "p", "output": "r", "reward": 1.0, "step": 1}),
        "line 1: it looks like verl's rollouts, but has reward where score is expected (rename it)",
    ),
    "a column missing": (
        json.dumps({"input": "p", "output": "r", "score": 1.0}),
        "line 1: it looks like verl's rollouts, but has no step (add it to every record)",
    ),
    "two of ours renamed": (
        json.dumps({"question": "p", "answer": "r", "reward": 1.0, "step": 1}),
        "line 1: it looks like RL Logging Board's, but has question where prompt is expected (rename it) "
        "and has answer where response is expected (rename it)",
    ),
    "TRL without advantages": (
        json.dumps({"step": 1, "prompt": "p", "completion": "r", "accuracy": 1.0, "advantages": 0.0}),
        "line 1: it looks like TRL's completions, but has advantages where advantage is expected (rename it)",
    ),
    "TRL's names without a step": (
        json.dumps({"prompt": "p", "completion": "r"}),
        "line 1: it looks like TRL's completions, but lacks step, advantage (add them to every record)",
    ),
    "TRL with responses": (
        json.dumps({"step": 1, "prompt": "p", "response": "r", "accuracy": 1.0, "advantage": 0.0}),
        "line 1: it looks like TRL's completions, but has response where completion is expected (rename it)",
    ),
    "metrics alone": (
        json.dumps({"step": 1, "loss": 2.0}),
        "line 1: it looks like metrics without responses (step, loss);",
    ),
    "something else": (json.dumps({"city": "Graz"}), "line 1: its fields (city) are of no form that is read"),
    "another table": (
        json.dumps({"columns": ["a"], "data": []}),
        "line 1: it looks like a table of Weights & Biases, but has the columns",
    ),
    "one list": (json.dumps([VERL]), "line 1: it looks like one JSON list; write each of its objects in a line of its own"),
    "over several lines": (json.dumps(VERL, indent=1), "line 1: it looks like JSON over several lines"),
    "UTF-16": ("\xff\xfe{\0}\0,\0", "line 1: it is written in UTF-16; write it in UTF-8"),
    "a table with commas": ("step,prompt,response\n1,p,r", "line 1: it looks like a table with commas (CSV)"),
    "a later line": (
        json.dumps(VERL) + "\n" + json.dumps({**VERL, "score": "high"}),
        "line 2, score: 'high' is not a number",
    ),
    "renamed on the way": (
        json.dumps(VERL) + "\n" + json.dumps({"input": "p", "output": "r", "acc": 1.0, "step": 1}),
        "line 2: it looks like verl's rollouts, but has no score (add it to every record)",
    ),
    "half a line alone": ('{"input": "p", "outp', "{path} has only a half-written line; open it when there is more"),
    "empty": ("", "{path} has 0 bytes; a log has at least one line, and at most 8,000,000,000 bytes"),
    "a pickle": ("\x80\x02}q\x00.", "{path}: it looks like a pickle (torch.save), which can run code and is not opened"),
    "half a table": ("PAR1 and so on", "{path} is no whole Parquet file ("),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_file_says_what_it_looks_like_and_the_smallest_change(case: str, tmp_path: Path) -> None:
    text, sentence = REFUSED[case]
    path = tmp_path / "log"
    path.write_bytes(text.encode("latin-1") + (b"" if case.startswith(("half", "empty")) else b"\n"))
    with pytest.raises(ConfigError, match=re.escape(sentence.format(path=path))) as error:
        open_log(path, tmp_path / "w")
    assert len(error.value.problems) == 1 and not (tmp_path / "w").exists()
    if sentence.startswith("line 1"):
        with pytest.raises(ConfigError, match=re.escape(sentence)):  # so does one that is to be followed
            Follower(path, tmp_path / "w").poll(0.0)


def test_a_folder_of_two_runs_is_refused_and_a_half_line_at_the_end_left_out(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written("verl", tmp_path / "logs" / "rollouts", 1)
    with (tmp_path / "logs" / "rollouts" / "2.jsonl").open("w") as file:
        file.write(json.dumps({**VERL, "step": 2}) + "\n" + json.dumps(VERL)[:20])
    (tmp_path / "logs" / "old.jsonl").write_bytes(b"\x1f\x8b\x08\x00")
    result, _ = opened(tmp_path / "logs", tmp_path / "w")
    assert (
        result.rollouts == 5
        and "Files of another form were passed over: old.jsonl." in result.notes
        and "The end of rollouts/2.jsonl is only half written and was left out." in result.notes
    )
    written("verl", tmp_path / "logs" / "validation", 1)
    with pytest.raises(ConfigError, match=r"rollouts in several folders \(rollouts, validation\); give one of them"):
        opened(tmp_path / "logs", tmp_path / "w")


def line(step: Any, response: str) -> str:
    return json.dumps({"prompt": "p", "response": response, "reward": 1.0, "step": step}) + "\n"


def test_following_survives_half_lines_wrong_lines_and_late_ones(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    follower = Follower(path, tmp_path / "w")

    def add(text: str, now: float) -> list[int]:
        with path.open("a") as file:
            file.write(text)
        return follower.poll(now)

    assert add(line(1, "a"), 0) == [] and add(line(2, "b")[:15], 1) == [] and add(line(2, "b")[15:], 2) == [1]
    assert add(line("three", "x") + "not JSON\n", 3) == [] and add("", 8) == [2]
    assert add(line(2, "c"), 9) == [] and add("", 15) == [2]  # the last step gets one more
    assert add(line(1, "late") + line(3, "d"), 16) == [] and add(line(4, "e")[:9], 30) == [3]
    assert follower.poll(31, last=True) == []
    follower.close()
    assert follower.run_dir is not None
    reader = RunReader(follower.run_dir)
    assert [(step, row.response) for step, row in records(reader)] == [(1, "a"), (2, "b"), (2, "c"), (3, "d")]
    diary = " ".join(event.text for event in reader.events_since(0))
    assert "Left out: line 3, step: 'three' is not a whole number" in diary and "Left out: line 4: it is not JSON" in diary
    assert "came after their step had been stored and were left out: 1." in diary and reader.status().state == "finished"


def test_a_file_that_cannot_be_read_for_a_while_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, good = tmp_path / "data.jsonl", [True]

    class File(BufferedReader):
        def readline(self, size: int | None = -1) -> bytes:
            data = super().readline(size)
            if not good[0] and text.endswith(data):  # the last line of the file
                raise OSError(errno.EIO, "Input/output error")
            return data

    monkeypatch.setattr(sources, "open_regular", lambda path: File(FileIO(path)))
    follower, text = Follower(path, tmp_path / "w"), b""

    def poll(now: float, *lines: str, reads: bool = True, last: bool = False) -> list[int]:
        nonlocal text
        text += "".join(lines).encode()
        path.write_bytes(text)
        good[0] = reads
        return follower.poll(now, last)

    assert poll(0, line(1, "a"), line(2, "b")) == [] and poll(1) == [1]
    assert poll(2, line(3, "c"), line(4, "d"), reads=False) == [] and poll(8, reads=False) == [2]
    assert poll(9) == [] and poll(10) == [3]
    with pytest.raises(ConfigError, match=r"data\.jsonl cannot be read: Input/output error"):
        good[0] = False
        open_log(path, tmp_path / "opened")
    assert poll(11, line(5, "e"), reads=False, last=True) == [4]
    follower.close()
    assert follower.run_dir is not None
    reader = RunReader(follower.run_dir)
    assert [(step, row.response) for step, row in records(reader)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    diary = " ".join(event.text for event in reader.events_since(0))
    for sentence in ("error. It is tried again until", "could not be read can be read again.", "error. What it had at the end is"):
        assert sentence in diary
    assert reader.status().state == "finished"


def test_a_file_that_is_written_anew_changes_no_step_that_is_stored(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "log", tmp_path / "w")
    written("board", tmp_path / "log", 1, 2, 3)
    assert follower.poll(0) == [] and follower.poll(1) == [1, 2] and follower.poll(6) == [3]
    (tmp_path / "log" / "data.jsonl").unlink()
    written("board", tmp_path / "log", 3, 4)
    assert follower.poll(7, last=True) == [4]
    follower.close()
    assert follower.run_dir is not None
    reader = RunReader(follower.run_dir)
    assert [step for step, _ in records(reader)] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert any("a file was written anew" in event.text for event in reader.events_since(0))


def test_a_file_that_is_written_anew_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Neither smaller nor another inode: what lies before the place where reading went on tells."""
    path = tmp_path / "data.jsonl"
    for step, first in ((1, 1), (2, 2)):  # step 2 still waits when it is written anew
        path.write_text(line(1, "old") + line(step, "old"))
        follower = Follower(path, tmp_path / "w")
        follower.poll(0)
        inode = path.stat().st_ino
        path.write_text("".join(line(number, "new") for number in range(first, 5)))
        assert path.stat().st_ino == inode
        follower.poll(1)
        assert follower.poll(20, last=True)[-1:] == [4]
        follower.close()
        assert follower.run_dir is not None
        reader = RunReader(follower.run_dir)
        texts = [(number, row.response) for number, row in records(reader) if number > 1]
        assert texts == [(2, "new"), (3, "new"), (4, "new")]
        assert any("The file was written anew while it was followed" in event.text for event in reader.events_since(0))


def tables() -> dict[str, tuple[dict[str, Any], str]]:
    """Columns of a Parquet file that JSON has no words for, and what is said; nothing where they can be read."""
    import pyarrow

    buffers = [pyarrow.py_buffer(data) for data in (b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\xff\xfe")]
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, *buffers])
    zone = pyarrow.timestamp("us", tz="No/Where")
    return {
        "letters": ({"completion": text}, "row 1: its column completion cannot be read"),
        "calendar": ({"when": pyarrow.array([2**62, 1], pyarrow.timestamp("us"))}, "row 1: its column when cannot be read"),
        "zone": ({"when": pyarrow.array([1, 1], zone)}, "row 1: its column when cannot be read"),
        "date": ({"step": [datetime(2020, 1, 1)] * 2}, "row 1, step: '2020-01-01T00:00:00' is not a whole number"),
        "bytes": ({"step": [b"\xff", b"2"]}, "row 1: a value in it is neither a text nor a number"),
        "decimal": ({"step": [Decimal(1)] * 2}, ""),
        "image": ({"image": [b"\xff", b"2"]}, ""),
    }


def test_a_table_with_values_that_json_has_not_is_refused_in_a_sentence_or_left_out(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    good: dict[str, Any] = {"step": [1, 1], "prompt": ["p", "p"], "completion": ["a", "b"], "advantage": [1.0, -1.0], "right": [1.0, 0.0]}
    log = tmp_path / "log"
    log.mkdir()
    write_table(pyarrow.table(good), log / "0.parquet")
    follower = Follower(log, tmp_path / "w")
    follower.poll(0)
    for name, (columns, sentence) in tables().items():
        path = log / f"{name}.parquet" if sentence else tmp_path / "read.parquet"
        write_table(pyarrow.table({**good, **columns}), path)
        if sentence:
            with pytest.raises(ConfigError, match=re.escape(sentence)):
                open_log(path, tmp_path / "w")
        else:
            assert open_log(path, tmp_path / "w").rollouts == 2, name
    (log / "circle.jsonl").symlink_to("circle.jsonl")
    assert follower.poll(1, last=True) == [1]
    follower.close()
    assert follower.run_dir is not None
    reader = RunReader(follower.run_dir)
    diary = " ".join(event.text for event in reader.events_since(0))
    assert len(records(reader)) == 2 and reader.status().state == "finished"
    assert "passed over: calendar.parquet, letters.parquet, zone.parquet" in diary
    assert "Left out: bytes.parquet, row 1: a value" in diary and "Left out: date.parquet, row 1, step" in diary


def test_following_ends_when_the_run_is_stopped_or_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(follow, "SETTLED_SECONDS", 0.0)
    written("board", tmp_path / "log", 0, 1)
    result = follow_log(
        tmp_path / "log", tmp_path / "w", stop=threading.Event(), begun=lambda run_dir: send_command(run_dir, "stop") and None
    )
    status = Workspace(tmp_path / "w").status(result.run_id)
    assert (result.steps, status.step, status.state, status.origin.imported) == (2, 2, "finished", "log")  # from 0 in the file
    stored: list[int] = []
    alone = follow_log(tmp_path / "log", tmp_path / "w", stop=threading.Event(), patience=0.0, stored=stored.append)
    assert (alone.steps, stored) == (2, [1, 2]) and "Nothing came for 0 minutes." in RunReader(
        tmp_path / "w" / "runs" / alone.run_id
    ).events_since(0)[-1].text
    with pytest.raises(ConfigError, match=r"had no response in 0 minutes; it is no longer followed"):
        follow_log(tmp_path / "nowhere", tmp_path / "w", stop=threading.Event(), patience=0.0)
    told = threading.Event()
    told.set()
    with pytest.raises(ConfigError, match="nowhere is not there"):
        follow_log(tmp_path / "nowhere", tmp_path / "w", stop=told)
    assert follow_log(tmp_path / "log", tmp_path / "w", stop=told).rollouts == 8
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    told.clear()

    def waiting(why: str) -> None:
        told.set()
        reasons.append(why)

    reasons: list[str] = []
    with pytest.raises(ConfigError, match="metrics.jsonl, line 1: it looks like metrics"):
        follow_log(tmp_path / "other", tmp_path / "w", stop=told, waiting=waiting)
    assert len(reasons) == 1 and reasons[0].startswith("metrics.jsonl: it looks like metrics")


def test_memory_does_not_grow_with_the_log_that_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BATCH_BYTES", 200_000)
    path = tmp_path / "all.jsonl"
    with path.open("w") as file:
        for step in range(300):
            file.write(json.dumps({**VERL, "output": "r" * 10_000, "step": step}) + "\n")
    translation = Translation(path)
    tracemalloc.start()
    count = sum(line.fields is not None for line in translation.lines())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 300 and path.stat().st_size > 3_000_000 and peak < 1_500_000, peak


def test_a_table_that_repeats_a_long_text_is_unpacked_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 128, pyarrow.int32()), ["r" * 1_000_000])
    numbers = {"step": [1] * 128, "prompt": ["p"] * 128, "advantage": [0.0] * 128, "right": [1.0] * 128}
    path = tmp_path / "completions.parquet"
    write_table(pyarrow.table({**numbers, "completion": texts}), path, store_schema=False)
    assert path.stat().st_size < 200_000
    usual = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(pool)
    try:
        sizes = [len(rows) for rows in GrowingFile(path).batches(last=True)]
    finally:
        pyarrow.set_memory_pool(usual)
    assert sum(sizes) == 128 and max(sizes) <= 9 and pool.max_memory() < 60_000_000, (sizes, pool.max_memory())

    def poll(*_: Any, **__: Any) -> list[int]:
        raise MemoryError

    monkeypatch.setattr(Follower, "poll", poll)
    with pytest.raises(StoreError, match="it needed too much memory"):
        follow_log(path, tmp_path / "w", stop=threading.Event())


def test_lines_of_steps_that_are_not_trained_wait_within_a_bound_and_are_stored_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WAITING_BYTES", 20_000)
    path = tmp_path / "log.jsonl"
    events = [json.dumps({"kind": "event", "step": 3 + number, "text": f"{number} " + "x" * 1500}) + "\n" for number in range(50)]
    path.write_text(line(1, "a") + "".join(events) + line(2, "b") + line(4, "c"))
    follower = Follower(path, tmp_path / "w")
    assert follower.poll(0) == [] and follower.poll(1) == [1, 2] and follower.poll(2, last=True) == [4]
    follower.close()
    assert follower.run_dir is not None
    texts = [event.text for event in RunReader(follower.run_dir).events_since(0)]
    numbers = [int(text.split()[0]) for text in texts if text.endswith("x")]
    assert sorted(numbers) == list(range(len(numbers))) and 5 < len(numbers) < 15
    assert any("steps that were not trained yet were left out: more than 20,000 bytes" in text for text in texts)


def test_the_table_of_forms_in_the_documents_is_that_of_the_code() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "logs.md").read_text(encoding="utf-8")
    for form in FORMS:
        assert f"| {form.name} | " in text, form.name
    assert text.count("\n| ", 0, text.index("## A response")) == len(FORMS) + 1


def test_bytes_that_never_make_a_character_are_shown_once_each(tmp_path: Path) -> None:
    letters = pre_tokenizers.ByteLevel.alphabet()
    coder = Tokenizer(models.BPE({letter: number for number, letter in enumerate(sorted(letters))}, []))
    coder.pre_tokenizer, coder.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    coder.save(str(tmp_path / "tokenizer.json"))
    half = coder.encode("\u00e9").ids[0]  # the first of two bytes
    before, after = coder.encode(" a").ids, coder.encode(" b").ids
    pieces = Tokens(str(tmp_path)).pieces([*before, *[half] * 5, *after])
    assert "".join(pieces) == coder.decode([*before, *[half] * 5, *after]) == " a" + "\ufffd" * 5 + " b"


def test_a_packed_log_is_bounded_as_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes can hold gigabytes: one text, a thousand times."""
    import pyarrow
    from pyarrow.parquet import write_table

    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000), pyarrow.array(["a " * 10_000]))
    columns = {"step": [1] * 500 + [2] * 500, "input": text, "output": ["b"] * 1000, "score": [1.0] * 1000}
    write_table(pyarrow.table(columns), path := tmp_path / "log.parquet", compression="zstd")
    assert path.stat().st_size < 20_000
    for name, most, row in (("STEP", 2_000_000, 100), ("FILE", 11_000_000, 548), ("LINE", 10_000, 1)):
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match="unpacked, it may have") as refused:
            patch.setattr(f"rlhf_studio.analysis.logs.translate.MOST_{name}_BYTES", most)
            open_log(path, tmp_path / "w")
        assert f"{most:,}" in str(refused.value) and f"row {row}:" in str(refused.value)
    with monkeypatch.context() as patch, pytest.raises(ConfigError, match="the file is too long: at most 999 rows"):
        patch.setattr("rlhf_studio.analysis.logs.sources.MOST_LINES", 999)
        patch.setattr("rlhf_studio.analysis.logs.sources.batches_of", None)  # nothing of it is read
        open_log(path, tmp_path / "w")
    with monkeypatch.context() as patch, pytest.raises(StoreError, match="too full: the log has [0-9,]* bytes, and 1,000,000 are free"):
        patch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1_000_000))  # enough for the file, not for what is in it
        patch.setattr("rlhf_studio.analysis.logs.open_log._stored", None)  # it is said while the file is unpacked
        open_log(path, tmp_path / "w")
    assert not (tmp_path / "w").exists()
