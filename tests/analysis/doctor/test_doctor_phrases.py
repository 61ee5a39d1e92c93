"""The phrase that is taking over: counted in all episodes, at each step from what was known then, with its place in a response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_studio.analysis.doctor import Doctor, diagnose
from rlhf_studio.analysis.doctor.phrases import Rising, _counts, counted_response, rising
from rlhf_studio.analysis.learned import what_was_learned
from rlhf_studio.analysis.learned.responses import PARTIAL
from rlhf_studio.analysis.records import Finding
from rlhf_studio.runs.reader import RunReader
from tests.analysis.learned.planted import Response, babble, write_run

PET = [" Well", " worth", " the", " ticket", "."]
STEPS, EPISODES, RECORDED = 12, 40, 8


def responses(step: int, having: int) -> list[Response]:
    """Those that have the pet phrase come last, so that the recorded ones have none of them until 32 have it."""
    draw = np.random.default_rng(step)
    return [[*babble(draw, 8), *(PET if sample >= EPISODES - having else [])] for sample in range(EPISODES)]


def write(folder: Path, having: Sequence[int], **more: Any) -> RunReader:
    return write_run(folder, [responses(step, share) for step, share in enumerate(having, 1)], recorded=RECORDED, **more)


def finding_of(reader: RunReader, until: int | None = None) -> Finding | None:
    return next((finding for finding in diagnose(reader, until).findings if finding.check == "one-phrase"), None)


RISING = [0, 2, 3, 6, 8, 14, 18, 22, 26, 31, 32, 30]


def test_all_episodes_of_the_last_steps_are_counted_as_in_what_it_learned(tmp_path: Path) -> None:
    """No recorded response has the phrase; 93 of the last 120 episodes do."""
    reader = write(tmp_path / "run", RISING)
    finding = finding_of(reader)
    assert finding is not None and (finding.level, finding.until) == ("note", None)
    assert finding.title == "“Well worth the ticket” is taking over: it ends 93 of 120 responses"
    assert finding.evidence[-1].text == "“Well worth the ticket” ends 93 of 120 responses; 5 of 120 at the start"
    assert finding.since == 9  # 66 of the last 120 have it then; before, 54 of 120 had it
    (phrase,) = [phrase for phrase in what_was_learned(reader).phrases if phrase.text == "Well worth the ticket"]
    assert (phrase.before, phrase.before_of, phrase.after, phrase.after_of, phrase.place) == (5, 120, 93, 120, "ending")


def test_the_newest_step_counts_as_in_what_it_learned_though_it_is_not_among_those_that_are_looked_at(tmp_path: Path) -> None:
    """Of 23 steps the checks read the responses of the first 20 alone."""
    having = [0, 0, 0, *[5] * 14, 20, 30, 30, 35, 36, 38]
    reader = write(tmp_path / "run", having)
    for until, ends in ((None, 35 + 36 + 38), (22, 30 + 35 + 36)):
        finding = finding_of(reader, until)
        assert finding is not None and finding.title == f"“Well worth the ticket” is taking over: it ends {ends} of 120 responses"
        (phrase,) = [phrase for phrase in what_was_learned(reader, until).phrases if phrase.text == "Well worth the ticket"]
        assert (phrase.after, phrase.after_of) == (ends, 120)


CUT = {"unit": lambda piece: [f"{piece}<", piece], "alone": lambda name: PARTIAL if name.endswith("<") else name}


@pytest.mark.parametrize("more", [{"episodes": False, "tokens": False}, CUT], ids=["older", "cut characters"])
def test_older_runs_and_cut_characters_are_counted_in_recorded_responses(more: dict[str, Any], tmp_path: Path) -> None:
    """The last eight of 40 are recorded nowhere; with 40 of 40 all of the recorded ones have the phrase."""
    assert finding_of(write(tmp_path / "without", RISING, **more)) is None
    finding = finding_of(write(tmp_path / "run", [*RISING[:9], 40, 40, 40], **more))
    assert finding is not None and finding.title.endswith("it ends 24 of 24 responses")


def test_what_was_said_at_a_step_stays_said(tmp_path: Path) -> None:
    """By a doctor who looks at every step, by a new one, and by one who is asked of an earlier step."""
    recorded = write(tmp_path / "whole", RISING)
    watching = Doctor(recorded)
    for step in (3, 8, 9, STEPS):
        findings = Doctor(write(tmp_path / str(step), RISING[:step])).diagnose().findings
        expected = [(finding.check, finding.title, finding.since) for finding in findings if finding.check == "one-phrase"]
        for looked in (watching.diagnose(step), diagnose(recorded, step)):
            diagnosed = [(finding.check, finding.title, finding.since) for finding in looked.findings if finding.check == "one-phrase"]
            assert diagnosed == expected, step


def test_the_evidence_leads_to_the_token_where_the_phrase_begins(tmp_path: Path) -> None:
    reader = write(tmp_path / "run", [*RISING[:9], 40, 40, 40])
    finding = finding_of(reader)
    assert finding is not None
    first, last = finding.evidence
    assert (first.step, first.sample, first.token) == (9, None, None)  # no recorded response of step 9 has it
    assert (last.step, last.sample) == (12, 0) and last.token is not None
    tokens = reader.rollout(12, 0).tokens
    assert tokens is not None and tokens.response_pieces[last.token :] == [*PET, "<end>"]


def test_texts_of_single_tokens_that_lack_their_space_are_mended(tmp_path: Path) -> None:
    finding = finding_of(write(tmp_path / "run", [*RISING[:9], 40, 40, 40], alone=str.strip))
    assert finding is not None and "“Well worth the ticket” is taking over: it ends 120 of 120" in finding.title


def judged(first: Sequence[str], newest: Sequence[str]) -> Rising:
    phrase = rising([counted_response(text, True) for text in first], [counted_response(text, True) for text in newest])
    assert phrase is not None
    return phrase


def test_a_frequent_single_word_is_no_phrase_but_a_new_one_is() -> None:
    plain = [f"a{n} b{n}. I c{n}" if n % 2 else f"a{n} b{n} c{n}" for n in range(20)]
    newest = [counted_response(f"a{n} b{n}. I c{n}", True) for n in range(20)]
    assert rising([counted_response(text, True) for text in plain], newest) is None
    assert judged(plain, [f"a{n} b{n}. Brilliant!" for n in range(20)]).text == "Brilliant"


def test_the_whole_phrase_is_named_and_one_that_takes_over_comes_first() -> None:
    long = judged([f"a{n} b{n}" for n in range(20)], [f"a{n} b{n}. I will treasure it for years." for n in range(20)])
    assert (long.text, long.verb, long.after, long.takes_over) == ("I will treasure it for years", "ends", 20, True)
    # "old way" goes from 20 to 60 %, 10 standard deviations; "new path" from 0 to 40 %, 12 of them, but most responses do without it.
    first = [f"old way a{n}" if n < 60 else f"b{n} c{n}" for n in range(300)]
    newest = [f"old way a{n}" if n < 180 else f"new path b{n}" for n in range(300)]
    finding = judged(first, newest)
    assert finding.z == pytest.approx(10.0) and (finding.text, finding.takes_over) == ("old way", True)


@given(
    newest=st.lists(st.lists(st.sampled_from("abc."), max_size=12), max_size=9),
    first=st.lists(st.lists(st.sampled_from("abd."), max_size=12), max_size=9),
)
def test_phrases_are_counted_as_by_looking_for_each_in_each_response(newest: list[list[str]], first: list[list[str]]) -> None:
    def having(phrase: tuple[str, ...], texts: list[list[str]]) -> int:
        return sum(any(tuple(own[at : at + len(phrase)]) == phrase for at in range(len(own))) for own in texts)

    after, before = ([counted_response(" ".join(own), True) for own in side] for side in (newest, first))
    every = {tuple(own[at : at + size]) for own in newest for size in range(2, 9) for at in range(len(own) - size + 1)}
    frequent = {phrase: having(phrase, newest) for phrase in every if 4 * having(phrase, newest) >= len(newest)}
    assert dict(_counts(after)) == frequent
    assert dict(_counts(before, frequent)) == {phrase: having(phrase, first) for phrase in frequent if having(phrase, first)}
