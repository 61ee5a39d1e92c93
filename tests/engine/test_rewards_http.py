"""A scoring server: what it is sent, what it may answer, and what is said when it does not."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import httpcore
import pytest
import torch

from rlhf_studio.config import HttpReward, Permissions, RewardConfig, permissions_from_flags
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.scoring_server import ScoringServer
from rlhf_studio.engine.rewards.outside import http_client
from rlhf_studio.engine.rewards.scorer import RewardError, build_scorer
from tests.engine.json_server import Handler, JsonServer

EPISODES = Episodes(["why", "how"], ["a b", "c"], [True, False], [2, 1])
FIELD = "reward.components.0"


@pytest.fixture
def judge() -> Iterator[JsonServer]:
    server = JsonServer().start()
    yield server
    server.close()


def scorer_for(judge: JsonServer, pauses: list[float] | None = None, **settings: Any) -> ScoringServer:
    settings = {"server": "judge", "retries": 0, **settings}
    sleep = (pauses if pauses is not None else []).append
    return ScoringServer(HttpReward(**settings), permissions_from_flags([], [f"judge={judge.url}"]), FIELD, sleep=sleep)


def failure(judge: JsonServer, **settings: Any) -> ComponentError:
    with pytest.raises(ComponentError) as caught:
        scorer_for(judge, **settings)(EPISODES)
    assert "s3cret" not in str(caught.value), "the address may hold a secret"
    return caught.value


def test_texts_out_scores_in(judge: JsonServer) -> None:
    judge.answers = [(200, '{"scores": [0.5, -2], "more": "is ignored"}')]
    assert scorer_for(judge)(EPISODES).scores.tolist() == [0.5, -2.0]
    assert judge.seen == [
        {
            "path": "/score?key=s3cret",
            "type": "application/json",
            "key": None,
            "body": {"prompts": ["why", "how"], "responses": ["a b", "c"]},
        }
    ]


def test_a_key_is_sent_as_a_bearer_token_and_gets_into_no_log(judge: JsonServer, caplog: pytest.LogCaptureFixture) -> None:
    judge.answers = [(503, ""), (200, '{"scores": [1, 2]}')]
    permissions = Permissions(urls={"judge": judge.url}, keys={"judge": "k3y", "other": "other"})
    caplog.set_level(logging.DEBUG)
    ScoringServer(HttpReward(server="judge"), permissions, FIELD, sleep=lambda seconds: None)(EPISODES)
    assert [request["key"] for request in judge.seen] == ["Bearer k3y"] * 2
    assert "s3cret" not in caplog.text and "k3y" not in caplog.text


@pytest.mark.parametrize("variable", ["https_proxy", "all_proxy"])
def test_a_proxy_of_the_environment_is_used_or_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the proxy for the address's own scheme counts; one of another kind is not passed over without a word."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "socks5://127.0.0.1:9")
    permissions = permissions_from_flags([], ["judge=https://judge.example"])
    if variable == "all_proxy":
        ScoringServer(HttpReward(server="judge"), permissions, FIELD)
        return
    with pytest.raises(ConfigError, match=f"{FIELD}.server: the proxy that the environment names for this server cannot be used"):
        ScoringServer(HttpReward(server="judge"), permissions, FIELD)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://judge.example/x", "http://proxy.example:8"), ("https://judge.example/x", None), ("http://near.example", None),
        ("http://localhost:1", None), ("http://port.example:81/x", None), ("http://user:word@port.example:81/x", None),
        ("http://port.example:82/x", "http://proxy.example:8"),
    ],
)  # fmt: skip
def test_which_proxy(url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "proxy.example:8")
    monkeypatch.setenv("no_proxy", "near.example,port.example:81")
    actual = http_client._proxy_for(url)
    assert (None if actual is None else bytes(actual.url).decode().rstrip("/")) == proxy


@pytest.mark.parametrize(
    "proxy", ["http://user:s3cret@proxy.example:port", "http://user:s3cret@[proxy", "http://s3cret:80 80", "ftp://s3cret"]
)
def test_a_proxy_that_is_no_address(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ConfigError, match="the proxy that the environment names for this server cannot be used") as caught:
        ScoringServer(HttpReward(server="judge"), permissions_from_flags([], ["judge=https://judge.example"]), FIELD)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_an_address_that_cannot_be_asked() -> None:
    with pytest.raises(ConfigError, match="what follows --reward-url judge= is not an address that can be asked"):
        ScoringServer(HttpReward(server="judge"), permissions_from_flags([], ["judge=http://x/s3cret\x01"]), FIELD)


def test_user_and_password_of_the_address_are_sent(judge: JsonServer) -> None:
    judge.answers = [(200, '{"scores": [1, 2]}')]
    permissions = Permissions(urls={"judge": judge.url.replace("://", "://us%40er:pass@")})
    ScoringServer(HttpReward(server="judge"), permissions, FIELD)(EPISODES)
    assert judge.seen[0]["key"] == "Basic dXNAZXI6cGFzcw==" and judge.seen[0]["path"] == "/score?key=s3cret"


def test_references_and_chats_are_sent_when_there_are_some_and_any_text_survives(judge: JsonServer) -> None:
    judge.answers = [(200, '{"scores": [1]}')]
    strange = "\ud800\n\u2028\x00😀"
    chat = [{"role": "user", "content": strange}]
    scorer_for(judge)(Episodes([strange], [strange], [True], [1], [strange], [chat]))
    assert judge.seen[0]["body"] == {"prompts": [strange], "responses": [strange], "references": [strange], "messages": [chat]}


def test_large_batches_are_split_and_kept_in_order(judge: JsonServer) -> None:
    judge.answers = [(200, '{"scores": [1, 2]}'), (200, '{"scores": [3, 4]}'), (200, '{"scores": [5]}')]
    texts = list("abcde")
    assert scorer_for(judge, batch_size=2)(Episodes(texts, texts, [True] * 5, [1] * 5)).scores.tolist() == [1, 2, 3, 4, 5]
    assert [request["body"]["responses"] for request in judge.seen] == [["a", "b"], ["c", "d"], ["e"]]
    judge.answers = [(200, '{"scores": [1, 2]}'), (200, '{"scores": [3, null]}')]
    with pytest.raises(ComponentError) as caught:
        scorer_for(judge, batch_size=2)(Episodes(texts[:4], texts[:4], [True] * 4, [1] * 4))
    assert caught.value.row == 3


def test_asking_again_with_growing_pauses(judge: JsonServer) -> None:
    judge.answers = [(429, ""), (500, ""), (502, ""), (200, '{"scores": [1, 2]}'), (503, "")]
    pauses: list[float] = []
    scorer = scorer_for(judge, pauses, retries=9)
    assert scorer(EPISODES).scores.tolist() == [1.0, 2.0]
    assert pauses == [0.5, 1.0, 2.0]
    pauses.clear()
    with pytest.raises(ComponentError, match=r"the server judge: answered with status 503 \(asked 10 times\)"):
        scorer(EPISODES)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30] and len(judge.seen) == 14


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_is_final_and_names_the_status(judge: JsonServer, status: int) -> None:
    judge.answers = [(status, "")]
    assert str(failure(judge, retries=5)) == f"the server judge: answered with status {status}"
    assert len(judge.seen) == 1


@pytest.mark.parametrize("status", [302, 308])
def test_redirects_are_not_followed(judge: JsonServer, status: int) -> None:
    judge.answers = [(status, "", {"Location": f"http://127.0.0.1:{judge.server_port}/elsewhere"})]
    assert f"answered with status {status}, a redirect" in str(failure(judge, retries=5))
    assert len(judge.seen) == 1


@pytest.mark.parametrize(
    ("body", "cause", "row"),
    [
        ("", "not a JSON object", None),
        ("not json", "not a JSON object", None),
        ("[1, 2]", "not a JSON object", None),
        ("[" * 20_000, "not a JSON object", None),
        ('{"score": [1, 2]}', 'holds no list "scores"', None),
        ('{"scores": [1]}', "it gave 1 scores for 2 responses", None),
        ('{"scores": [1, NaN]}', "nan, which is not a finite number", 1),
        ('{"scores": [Infinity, 1]}', "inf, which is not a finite number", 0),
        ('{"scores": [1, "2"]}', "'2', which is not a number", 1),
        ('{"scores": [true, 1]}', "'True', which is not a number", 0),
        ('{"error": "no GPU left"}', "no GPU left", None),
        ('{"scores": [1, 2], "x": "' + "y" * 30_000 + '"}', "its answer is longer than 20128 bytes", None),
    ],
)
def test_answers_that_are_none(judge: JsonServer, body: str, cause: str, row: int | None) -> None:
    judge.answers = [(200, body)]
    error = failure(judge, retries=5)
    assert str(error).startswith("the server judge: ") and cause in str(error) and error.row == row
    assert len(judge.seen) == 1


@pytest.mark.parametrize("answer", [("hang", ""), (200, '{"scores"', {"X-Then": "hang"})])
def test_a_server_that_is_silent(judge: JsonServer, answer: tuple[Any, ...]) -> None:
    """Before its answer, or in the middle of it."""
    judge.answers = [answer]
    assert "did not answer within 0.2 s (asked once)" in str(failure(judge, timeout=0.2))


def test_headers_without_end(judge: JsonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for the whole exchange, from the connection on: each read is quick, the whole is not."""
    piece = b"HTTP/1.1 100 Continue\r\n\r\n"

    def drip(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            for _ in range(200):
                handler.wfile.write(piece)
                if judge.release.wait(0.02):
                    return

    monkeypatch.setattr(Handler, "do_POST", drip)
    assert "did not answer within 0.2 s (asked once)" in str(failure(judge, timeout=0.2))


def test_a_server_that_takes_no_connection(judge: JsonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = scorer_for(judge, timeout=7)
    monkeypatch.setattr(scorer._client._pool, "stream", unreachable)
    with pytest.raises(ComponentError, match=r"the server judge: did not answer within 7 s \(asked once\)"):
        scorer(EPISODES)


def unreachable(*arguments: Any, **options: Any) -> Any:
    """How httpcore tells of a connection that could not be made in time."""
    raise httpcore.ConnectTimeout("timed out")


def test_cookies_are_not_kept(judge: JsonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    judge.answers = [(200, '{"scores": [1, 2]}', {"Set-Cookie": "a=b; Path=/"})]
    cookies: list[str | None] = []
    before = Handler.do_POST
    monkeypatch.setattr(Handler, "do_POST", lambda self: (cookies.append(self.headers["Cookie"]), before(self)))
    scorer = scorer_for(judge)
    scorer(EPISODES)
    scorer(EPISODES)
    assert cookies == [None, None]


def test_nobody_is_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        permissions = permissions_from_flags([], [f"judge=http://127.0.0.1:{free.getsockname()[1]}/s3cret"])
    scorer = ScoringServer(HttpReward(server="judge", retries=2), permissions, FIELD, sleep=lambda seconds: None)
    with pytest.raises(ComponentError, match=r"^the server judge: cannot be reached: Connection refused \(asked 3 times\)$"):
        scorer(EPISODES)


def test_the_whole_message_names_component_and_status(judge: JsonServer) -> None:
    judge.answers = [(404, "")]
    settings = RewardConfig.model_validate({"components": [{"kind": "http", "server": "judge", "name": "remote"}]})
    compute = Compute(torch.device("cpu"), torch.float32)
    scorer = build_scorer(settings, compute, lambda text, fraction: None, permissions_from_flags([], [f"judge={judge.url}"]))
    with pytest.raises(
        RewardError, match=r"^reward component remote: the server judge: answered with status 404; it was scoring the batch"
    ):
        scorer(EPISODES)
    judge.answers = [(200, '{"scores": [1e300, 1]}')]  # finite, but not as float32
    with pytest.raises(RewardError, match=f"component remote gave {math.inf} for the prompt 'why'"):
        scorer(EPISODES)


def test_only_servers_that_were_named_at_the_start() -> None:
    for name, urls, part in (
        ("judge", {}, "start the program with --reward-url judge=URL"),
        ("judge", {"other": "http://x"}, "known here: other"),
        ("", {}, "name the scoring server"),
        ("http://127.0.0.1:1/", {"judge": "http://127.0.0.1:1/"}, "no server is called http"),
    ):
        with pytest.raises(ConfigError) as caught:
            ScoringServer(HttpReward(server=name), Permissions(urls=urls), FIELD)
        assert caught.value.problems[0].field == f"{FIELD}.server" and part in caught.value.problems[0].message
