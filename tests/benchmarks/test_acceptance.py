"""Figures beside their limits: sums against literals, the stand-in against the viewers' own questions, a day without an app."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import worst_day
from benchmarks.viewers import slow
from benchmarks.viewers.acceptance import Part, delays, figures
from benchmarks.viewers.limits import Figure, percentile
from benchmarks.viewers.page import Seen
from benchmarks.viewers.stand_in import StandIn
from rlhf_studio.runs import studio
from rlhf_studio.runs.workspace import Workspace


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([5, 1, 3, 2, 4], 0.5) == 3
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7.0], 0.95) == 7
    assert percentile([], 0.95) == math.inf


def test_what_was_not_measured_keeps_no_limit() -> None:
    assert Figure("a", 1.1, "s", 1.1).line() == "a: 1.1 s  (limit 1.1: kept)"
    assert Figure("a", 1.2, "s", 1.1).line().endswith("(limit 1.1: BROKEN)")
    assert not Figure("a", math.inf, "s", 9).holds and not Figure("a", math.nan, "s", 9).holds
    assert Figure("a", math.inf, "s", 9).as_json()["value"] is None
    assert Figure("only told", 1e9).holds


def part(step: float, cpu: float, arrivals: list[tuple[int, int, float]], problems: list[str] | None = None) -> Part:
    return Part(step, cpu, 100.0, 120.0, Seen(latencies=[0.01] * 20, arrivals=arrivals, problems=problems or []))


def test_a_step_is_late_by_the_time_until_each_viewer_had_it_or_a_later_one() -> None:
    arrivals = [(0, 1, 101.5), (0, 2, 102.2), (1, 2, 103.0)]  # the second viewer saw step 1 with step 2
    commits = {0: 99.0, 1: 101.0, 2: 102.0, 3: 119.5}  # step 0 came before the window, step 3 may still be on its way
    assert sorted(delays([part(1, 0, arrivals)], commits)) == pytest.approx([0.2, 0.5, 1.0, 2.0])
    assert delays([part(1, 0, arrivals[:1])], commits) == [0.5, math.inf]  # a step that never came is no fast one


def test_the_stand_in_is_taken_off_the_app() -> None:
    arrivals = [(0, 1, 101.4)]
    parts = {
        "app": [part(1.1, 0.2, arrivals), part(2.4, 0.3, []), part(1.1, 0.2, [])],
        "stand-in": [part(1.0, 0.1, []), part(2.0, 0.1, [], ["lost"]), part(1.0, 0.1, [])],
    }
    found = {one.what: one for one in figures(50, parts, {1: 101.0}, {"acted": 0.5, "seen": 1.0, "ended": 2.0})}
    assert found["CPU of the app for one viewer"].value == pytest.approx(2.0)  # milliseconds a second
    assert found["a step beside the app ÷ beside the stand-in"].value == pytest.approx(1.1)
    assert found["from a step's commit to a viewer, 95 %"].value == pytest.approx(0.4)
    assert [one.what for one in found.values() if not one.holds] == ["errors"]


def read(response: bytes) -> dict[str, Any]:
    head, _, body = response.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    found: dict[str, Any] = json.loads(gzip.decompress(body) if b"gzip" in head else body)
    return found


def test_the_stand_in_has_a_new_step_as_often_as_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    news = {"version": "real", "last_step": 7, "status": {"step": 7, "state": "running"}, "insight": "x", "series": "y" * 2000}
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stand_in = StandIn({"full": {**news, "full": True}, "delta": news, "samples": {"rows": []}, "step_seconds": 2.0})

    def poll(version: str) -> dict[str, Any]:
        return read(stand_in.answer({"fn_name": "poll", "data": {"version": version}}))

    first = poll("")
    assert (first["full"], first["last_step"], first["status"]["step"], first["version"]) == (True, 7, 7, "v7") and "insight" not in first
    assert poll("v7")["same"] is True
    now[0] = 4.1
    assert poll("v7")["last_step"] == 9 and poll("v7")["sample_steps"] == [[1, 9]]
    assert read(stand_in.answer({"fn_name": "fetch", "data": {"kind": "samples"}})) == {"rows": []}


def test_a_slow_client_sends_half_of_a_request_and_ends_with_its_connection() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    async def scene() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await asyncio.wait_for(slow.Client(server.sockets[0].getsockname()[1], "half a head").hold(), 20)

    asyncio.run(scene())
    assert heard[0].startswith(b"POST /") and b"\r\n\r\n" not in heard[0]


def test_runs_that_begin_out_of_turn_are_counted(tmp_path: Path) -> None:
    with studio.change(tmp_path) as connection:
        for run in ("a", "b", "c", "d"):
            studio.append(connection, run, "train", seq=0)
    watch: Any = SimpleNamespace(workspace=Workspace(tmp_path), order=["a", "b", "c", "d"])
    assert worst_day.begun_out_of_turn(watch) == 0
    watch.order = ["a", "c", "b", "d"]
    assert worst_day.begun_out_of_turn(watch) == 1
