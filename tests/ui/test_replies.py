"""Replies on their way out: shared parts compressed once, heads together with bodies, and no word of where the workspace lies."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_studio.ui.serving import direct, shared_reply
from rlhf_studio.ui.serving.one_packet import OnePacket
from rlhf_studio.ui.serving.replies import WithoutPlaces
from rlhf_studio.ui.serving.shared_reply import SharedReply, gzipped


@given(own=st.binary(max_size=300), shared=st.binary(max_size=5000), times=st.sampled_from([1, 1, 400]))
def test_both_parts_are_one_gzip_file(own: bytes, shared: bytes, times: int) -> None:
    """``gzip`` of the standard library checks length and checksum; blocks hold at most 65,535 bytes."""
    assert gzip.decompress(gzipped(own * times, shared)) == own * times + shared


def test_the_shared_part_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_reply._kept.cache_clear()
    made: list[bytes] = []
    deflated = shared_reply._deflated
    monkeypatch.setattr(shared_reply, "_kept", shared_reply.lru_cache(4)(lambda part: (made.append(part), deflated(part))[1]))
    shared = b'"series":[' + b"1," * 2000 + b"1]}"
    for number in range(3):
        sent = SharedReply(b'{"now":%d,' % number, shared).told(packed=True)
        assert sent.headers["content-encoding"] == "gzip" and len(sent.body) < 200
        assert json.loads(gzip.decompress(sent.body))["now"] == number
    assert made == [shared]


def test_who_reads_no_gzip_and_what_is_short_is_told_as_it_is() -> None:
    long = SharedReply(b'{"now":1,', b'"text":"' + b"x" * 3000 + b'"}')
    assert long.told(packed=False).body == long.body and "content-encoding" not in long.told(packed=False).headers
    assert SharedReply(b'{"now":1,', b'"same":true}').told(packed=True).body == b'{"now":1,"same":true}'


def test_what_is_hidden_is_hidden_in_both_parts() -> None:
    places = WithoutPlaces(Path("/srv/ws"))
    reply = SharedReply(b'{"a":"/srv/ws/x",', b'"b":"/srv/ws/y","c":"' + b"z" * 2000 + b'"}')
    for packed in (False, True):
        body = reply.told(packed, places.shortened).body
        found = json.loads(gzip.decompress(body) if packed else body)
        assert (found["a"], found["b"]) == ("x", "y")


@pytest.mark.parametrize("root", ["/srv/ws", "/srv/wsé-class", '/srv/my "ws"', "/srv/☃ws", "/srv/a.b"])
@pytest.mark.parametrize("inner_escaped", [True, False])
@pytest.mark.parametrize("outer_escaped", [True, False])
def test_the_place_is_found_however_json_writes_it(root: str, inner_escaped: bool, outer_escaped: bool) -> None:
    """Also in JSON that stands in JSON as a text, as in outcomes of Gradio's events."""
    sentence = f"{root}/studio.db is damaged; file://{root}/x\nThe workspace {root} is not there, nor {root}."
    inner = json.dumps({"problem": sentence}, ensure_ascii=inner_escaped)
    body = json.dumps({"data": [inner], "plain": sentence}, ensure_ascii=outer_escaped).encode()
    found = json.loads(WithoutPlaces(Path(root)).shortened(body))
    told = "studio.db is damaged; file://x\nThe workspace . is not there, nor .."
    assert found["plain"] == told and json.loads(found["data"][0])["problem"] == told


@pytest.mark.parametrize("text", ["/srv/ws2/x", "/srv/ws-old/x", "/srv/ws.old/x", "/other/srv/ws/x", "~/srv/ws/x"])
def test_other_places_stay(text: str) -> None:
    body = json.dumps({"text": text}).encode()
    assert WithoutPlaces(Path("/srv/ws")).shortened(body) == body


def test_half_of_a_surrogate_pair_is_told_with_an_escape() -> None:
    """A text of the store that one run brought along would else keep everybody from the table."""

    async def table(data: Any, request: Any) -> Any:
        return {"runs": [{"name": "N\ud800"}]}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    scope = {"type": "http", "headers": [], "path": "/gradio_api/component_server"}
    asyncio.run(direct.answer(table, None, scope, receive, send, None))
    assert sent[0]["status"] == 200 and json.loads(sent[1]["body"]) == {"runs": [{"name": "N\ud800"}]}


class Line:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def abort(self) -> None:
        self.told.append("aborted")

    def get_extra_info(self, name: str) -> str:
        return name


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (["head", "body"], [HEAD + b"body"]),
        (["head", "body", "body"], [HEAD + b"body", b"body"]),
        (["head", "turn"], [HEAD]),
        (["head", "turn", "body"], [HEAD, b"body"]),
        (["head", "close"], [HEAD, "closed"]),
        (["head", "abort", "turn"], ["aborted"]),
        (["head", "head", "turn"], [HEAD + HEAD]),
        (["body", "turn"], [b"body"]),
    ],
)
def test_a_head_waits_for_its_body_and_no_longer_than_a_turn(steps: list[str], told: list[Any]) -> None:
    async def go() -> list[Any]:
        line = Line()
        packet: Any = OnePacket(line, asyncio.get_running_loop())  # type: ignore[arg-type]
        for step in steps:
            if step == "turn":
                await asyncio.sleep(0)
            elif step in ("close", "abort"):
                getattr(packet, step)()
            else:
                packet.write(HEAD if step == "head" else b"body")
        assert packet.get_extra_info("peername") == "peername"
        return line.told

    assert asyncio.run(go()) == told
