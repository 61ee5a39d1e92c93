"""The arena's votes on the disk: in their order, and not one that was acknowledged is lost to a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.evaluation.votes import FILE, ArenaVote, keep_vote, read_votes

ODD = "b\u2028\n\U0001f600"
VOTES = [ArenaVote(0, ("start", 0), (ODD, 1), "left"), ArenaVote(3, ("x", 2), ("y", 0), "tie"), ArenaVote(1, ("x", 0), ("y", 0), "right")]


def test_votes_come_back_in_their_order(tmp_path: Path) -> None:
    assert read_votes(tmp_path) == []
    for count, vote in enumerate(VOTES, start=1):
        keep_vote(tmp_path, vote)
        assert read_votes(tmp_path) == VOTES[:count]


def test_a_line_that_a_kill_cut_off_is_no_vote_and_harms_none(tmp_path: Path) -> None:
    for vote in VOTES:
        keep_vote(tmp_path, vote)
    content = (tmp_path / FILE).read_bytes()
    last = len(content.splitlines(keepends=True)[-1])
    for lost in range(1, last):
        (tmp_path / FILE).write_bytes(content[:-lost])
        assert read_votes(tmp_path) == VOTES[:2]
        keep_vote(tmp_path, VOTES[2])
        assert (tmp_path / FILE).read_bytes() == content


@pytest.mark.parametrize("line", ["{}", "no", '{"place": 0, "left": ["a", 0], "right": ["b", 0], "choice": "both"}', "[" * 100_000])
def test_a_damaged_file_is_told(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE).write_text(line + "\n")
    with pytest.raises(StoreError, match="is damaged") as caught:
        read_votes(tmp_path)
    assert caught.value.reason == "damaged"
