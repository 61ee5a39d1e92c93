"""The cost of watching and recording: a viewer against a server that we wrote, the sums against literals, a real trainer in turns."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import recording
from benchmarks.speed.__main__ import workload_job
from benchmarks.speed.ours import run_config, running
from benchmarks.speed.workloads import WORKLOADS
from benchmarks.watching import page
from benchmarks.watching.__main__ import Window, summarise, viewer_lines
from benchmarks.watching.page import Traffic, Viewer


class App:
    """Answers as the app does: one new step, then nothing new. Notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        data = body["data"]
        if body["fn_name"] == "fetch":
            self.asked.append((data["kind"], (data["step"], data["sample"])))
            return {"rows": [{"sample": 4}, {"sample": 5}]}
        self.asked.append(("poll", data["version"]))
        if data["version"] == "v1":
            return {"same": True}
        status = {"step": 3, "state": "running"}
        new = {"version": "v1", "epoch": 0, "last_step": 3, "events": [{"id": 9}], "settings": {"watch_every": 5}}
        return {"status": status, "sample_steps": [[1, 3]], **new}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                answer = json.dumps(self.reply(json.loads(await reader.readexactly(length)))).encode()
                if len(self.asked) % 2:  # now compressed and in parts, now plain: servers do both
                    answer = gzip.compress(answer)
                    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
                    writer.write(head + f"{len(answer):x}\r\n".encode() + answer + b"\r\n0\r\n\r\n")
                else:
                    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        except asyncio.IncompleteReadError:
            writer.close()


async def watch_a_little(app: App, monkeypatch: pytest.MonkeyPatch) -> Traffic:
    monkeypatch.setattr(page, "POLL_SECONDS", 0.0)
    seen = Traffic()
    async with await asyncio.start_server(app.serve, "127.0.0.1", 0) as server:
        task = asyncio.create_task(Viewer(server.sockets[0].getsockname()[1], 7, "run-1", 0, seen).watch())
        while len(app.asked) < 5 and not task.done():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return seen


def test_a_viewer_asks_what_the_page_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    seen = asyncio.run(watch_a_little(app, monkeypatch))
    first = [("poll", ""), ("samples", (3, -1)), ("answer", (0, -1))]
    assert app.asked[:5] == [*first, ("poll", "v1"), ("poll", "v1")]
    assert seen.fetches == 2
    assert seen.poll_bytes[1] == len(b'{"same": true}') or seen.poll_bytes[2] == len(b'{"same": true}')
    assert all(latency > 0 for latency in seen.latencies)


def test_the_page_polls_as_often_as_the_browser() -> None:
    script = (Path(__file__).parents[2] / "rlhf_studio" / "ui" / "assets" / "shared" / "poll.js").read_text(encoding="utf-8")
    assert f"const LOCAL = {1000 * page.POLL_SECONDS:.0f};" in script


def test_watching_is_compared_round_by_round() -> None:
    def pair(alone: float, watched: float) -> dict[int, Window]:
        return {0: Window(0, alone, 9, 0.01, 0.0), 10: Window(10, watched, 9, 0.04, 0.02)}

    seen = Traffic([0.001] * 19 + [0.05], [100] * 20, fetches=2, fetched_bytes=3000)
    found = summarise(10, [pair(1.0, 1.1), pair(2.0, 2.1), pair(1.0, 1.2)], [seen, seen, seen], seconds=5.0)
    assert found["slowdown"] == pytest.approx({"median": 1.1, "min": 1.05, "max": 1.2})
    assert found["cpu_per_viewer"] == pytest.approx(0.003)
    assert found["latency"] == {"median": 0.001, "p95": 0.001}
    assert found["bytes_per_viewer_second"] == pytest.approx(3 * (2000 + 3000) / 10 / 5 / 3)
    assert viewer_lines(found)[0] == "10 viewers: a step takes 1.100 times as long (1.050 to 1.200)"


def test_recording_is_compared_pair_by_pair() -> None:
    steps = {"on": [1.1, 2.2, 1.0], "off": [1.0, 2.0, 1.0]}
    parts = {"watch": [0.0165], "probes": [0.0011, 0.9, 0.0011], "tokens": [0.022] * 3, "commit": [0.0055] * 3}
    found = recording.shares({**steps, **parts})
    assert found["parts"] == pytest.approx({"watch": 0.005, "probes": 0.001, "tokens": 0.02, "episodes": 0.0, "commit": 0.005})
    assert found["openly"] == pytest.approx(0.031)
    assert found["difference"] == pytest.approx({"median": 0.1, "min": 0.0, "max": 0.1})
    line = recording.recording_line({"workload": "w1", **found, "cpu": {"openly": 0.02}})
    assert "watch 0.50 %" in line and "2.00 % of its processor time" in line and "pair by pair 10.00 %" in line
    assert [recording.recorded_turn(number) for number in range(4)] == [True, False, False, True]


def test_steps_with_and_without_recording_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    job = workload_job(replace(WORKLOADS["w0"], updates=2), threads=1, cache=tmp_path)
    with running(run_config(job)) as (trainer, _):
        with recording.unrecorded(trainer):
            quiet = trainer.step()
        loud = trainer.step()
    assert (len(quiet.rollouts), len(quiet.watched)) == (0, 0)
    assert len(loud.rollouts) == 8
    found = recording.measure_recording("w0", recording.workload_config(job, pairs=1), pairs=1)
    assert found["pairs"] == 1
    assert 0 < found["openly"] < 1
    assert all(share > 0 for name, share in found["parts"].items() if name != "watch")  # watched prompts are not due in two steps
