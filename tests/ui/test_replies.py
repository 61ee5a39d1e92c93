"""Replies on their way out: compressed once for all, and no word of where the workspace lies."""

from __future__ import annotations

import gzip
import json
import math
from functools import lru_cache
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from rlhf_studio.ui.sent import as_json
from rlhf_studio.ui.serving import replies
from rlhf_studio.ui.serving.replies import WithoutRoot


def headers(coding: str = "gzip") -> Headers:
    return Headers({"accept-encoding": coding})


def test_the_same_bytes_are_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody who follows a run gets the same bytes, see LiveFeed.poll. What viewers may not see is removed before compression."""
    made: list[bytes] = []
    pack = replies._compressed
    monkeypatch.setattr(replies, "_cached", lru_cache(4)(lambda body: (made.append(body), pack(body))[1]))
    without_root = WithoutRoot(Path("/srv/ws"))
    body = b'{"a":"/srv/ws/x","series":[' + b"1," * 2000 + b"1]}"
    for hidden in (None, without_root, None, without_root):
        reply = replies.reply_of(as_json(body), headers(), hidden)
        assert reply.headers["content-encoding"] == "gzip" and len(reply.body) < 200
        assert json.loads(gzip.decompress(reply.body))["a"] == ("x" if hidden else "/srv/ws/x")
    assert len(made) == 2


def test_who_reads_no_gzip_and_what_is_short_is_told_as_it_is() -> None:
    long, short = b'{"text":"' + b"x" * 3000 + b'"}', b'{"same":true}'
    for body, coding in ((long, "br"), (long, "gzip;q=0"), (short, "gzip")):
        reply = replies.reply_of(as_json(body), headers(coding), None)
        assert reply.body == body and "content-encoding" not in reply.headers
        assert (reply.headers["content-length"], reply.headers["cache-control"]) == (str(len(body)), "no-store")


@pytest.mark.parametrize("root", ["/srv/ws", "/srv/wsé-class", '/srv/my "ws"', "/srv/☃ws", "/srv/a.b"])
@pytest.mark.parametrize("inner_escaped", [True, False])
@pytest.mark.parametrize("outer_escaped", [True, False])
def test_the_place_is_found_however_json_writes_it(root: str, inner_escaped: bool, outer_escaped: bool) -> None:
    """Also in JSON that stands as a text in other JSON, as in outcomes of Gradio's events."""
    sentence = f"{root}/studio.db is damaged; file://{root}/x\nThe workspace {root} is not there, nor {root}."
    inner = json.dumps({"problem": sentence}, ensure_ascii=inner_escaped)
    body = json.dumps({"data": [inner], "plain": sentence}, ensure_ascii=outer_escaped).encode()
    reply = json.loads(WithoutRoot(Path(root)).shortened(body))
    shortened = "studio.db is damaged; file://x\nThe workspace . is not there, nor .."
    assert reply["plain"] == shortened and json.loads(reply["data"][0])["problem"] == shortened


@pytest.mark.parametrize("text", ["/srv/ws2/x", "/srv/ws-old/x", "/srv/ws.old/x", "/other/srv/ws/x", "~/srv/ws/x"])
def test_other_places_stay(text: str) -> None:
    body = json.dumps({"text": text}).encode()
    assert WithoutRoot(Path("/srv/ws")).shortened(body) == body


def test_files_are_sent_on_as_they_come_and_only_answers_of_functions_are_held() -> None:
    """A script names no place; one that is held until it is whole waits in memory for those who read slowly."""

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent here")

    sender = WithoutRoot(Path("/srv/ws")).sender
    passed_on = ("/gradio_api/file=/app/ui/assets/live/live.js", "/", "/assets/index.js")
    assert [path for path in passed_on if sender({"type": "http", "path": path}, send) is not send] == []
    assert sender({"type": "http", "path": "/gradio_api/run/predict"}, send) is not send


def test_what_orjson_refuses_or_no_json_has_is_told_all_the_same() -> None:
    """Otherwise one run with such a text would keep everybody from the table of runs."""
    for answer, expected in (({"runs": [{"name": "N\ud800"}]},) * 2, ({"kl": math.nan}, {"kl": None})):
        reply = replies.reply_of(answer, headers(), None)
        assert (reply.status_code, json.loads(reply.body)) == (200, expected)
