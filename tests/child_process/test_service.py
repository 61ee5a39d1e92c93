"""A child process that works beside the app: its queue, how it is cancelled, and how it begins and ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.child_process import service as module
from rlhf_studio.child_process.service import NEEDED_BY_A_RUN, Busy, Job, Service
from rlhf_studio.config import Permissions
from rlhf_studio.config.permissions import VARIABLE
from tests.child_process.job_stand_in import COMMAND
from tests.waiting import gone, wait_until


@pytest.fixture
def make() -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(*given: Any, **options: Any) -> Service:
        made.append(Service("", *given, **{"command": COMMAND, **options}))
        return made[-1]

    yield make
    for service in made:
        service.close()


def ended(service: Service, do: str, **more: Any) -> Job:
    job = service.submit({"do": do, **more})
    assert job.ended.wait(60)
    return job


def begun(job: Job) -> None:
    wait_until(lambda: job.events, 60)


def test_one_process_works_on_one_request_after_the_other(make: Callable[..., Service]) -> None:
    service = make()
    first, second = ended(service, "look", text="\u20ac"), ended(service, "look")
    assert [event["event"] for event in first.events] == ["progress", "result"] and first.state == "done"
    assert first.last("result")["request"]["text"] == "\u20ac"
    assert first.last("result")["pid"] == second.last("result")["pid"] == service.pid
    assert service.find(first.key) is first and service.find("other") is None and service.find(3) is None
    assert ended(service, "refuse").last("failed")["error"] == "There is none."
    assert ended(service, "fail").last("failed")["error"] == "ZeroDivisionError: by zero"
    assert service.pid == first.last("result")["pid"]


def test_others_wait_their_turn_and_may_be_cancelled(make: Callable[..., Service]) -> None:
    service, ends = make(most_waiting=2), []
    first = service.submit({"do": "hang"}, after=lambda: ends.append("first"))
    begun(first)
    second, third = service.submit({"do": "look"}), service.submit({"do": "look"})
    assert (service.before(first), service.before(second), service.before(third)) == ([], [first], [first, second])
    with pytest.raises(Busy, match="2 requests are waiting"):
        service.submit({"do": "look"})
    service.cancel(second)
    assert (second.state, second.events) == ("done", [{"event": "stopped"}])
    pid = service.pid
    service.cancel(first)
    assert third.ended.wait(60) and third.last("result")["pid"] == pid
    assert first.events[-1] == {"event": "stopped"} and ends == ["first"]


def test_a_process_that_cannot_stop_is_ended(make: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCEL_SECONDS", 0.0)
    for stops in (True, False):
        service = make(stops=stops)
        job = service.submit({"do": "never stop"})
        begun(job)
        pid = service.pid
        service.cancel(job)
        assert job.ended.wait(60) and job.events[-1] == {"event": "stopped"} and gone(pid)


def test_a_process_that_dies_is_said_and_replaced(make: Callable[..., Service]) -> None:
    service = make()
    job = ended(service, "die")
    assert "has ended in the middle of this (it ended with exit code 9). Ask again" in job.last("failed")["error"]
    pid = ended(service, "look").last("result")["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    assert ended(service, "look").last("result")["pid"] != pid, "one that died while nobody used it is replaced without a word"
    assert "answer is not a JSON object" in ended(service, "garbage").last("failed")["error"]


def test_a_process_that_cannot_be_started_or_is_silent(make: Callable[..., Service]) -> None:
    assert ended(make(command=["/no/such/program"]), "look").last("failed")["error"] == (
        "The process could not be started: No such file or directory."
    )
    assert "Nothing was heard for 0.5 seconds" in ended(make(patience=0.5), "never stop").last("failed")["error"]


def test_it_ends_when_nobody_asks_and_with_the_app(make: Callable[..., Service]) -> None:
    service = make(idle=0.05)
    pid = ended(service, "look").last("result")["pid"]
    wait_until(lambda: service.pid is None and gone(pid))
    once = make(idle=0.0)
    assert gone(ended(once, "look").last("result")["pid"]) and once.pid is None
    service = make()
    working, waiting = service.submit({"do": "never stop"}), service.submit({"do": "look"})
    begun(working)
    pid = service.pid
    service.close()
    assert gone(pid) and working.ended.is_set() and waiting.last("failed")["error"] == "The app is stopping."
    with pytest.raises(Busy, match="stopping"):
        service.submit({"do": "look"})


def test_it_can_be_started_before_it_is_asked(make: Callable[..., Service]) -> None:
    service = make()
    service.begin()
    service.begin()
    wait_until(lambda: service.pid)
    assert ended(service, "look").last("result")["pid"] == service.pid


def test_a_gpu_that_a_run_needs_is_left_alone(make: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUN_LOOK_SECONDS", 0.05)
    free = [True]
    service = make(gpu=lambda: free[0])
    on_gpu = ended(service, "look").last("result")
    assert on_gpu["variables"].get("CUDA_VISIBLE_DEVICES") == os.environ.get("CUDA_VISIBLE_DEVICES")
    job = service.submit({"do": "hang"})
    begun(job)
    free[0] = False
    assert job.ended.wait(60) and job.last("failed")["error"] == NEEDED_BY_A_RUN and gone(on_gpu["pid"])
    on_cpu = ended(service, "look").last("result")
    assert on_cpu["variables"]["CUDA_VISIBLE_DEVICES"] == ""
    free[0] = True
    assert "CUDA_VISIBLE_DEVICES" not in ended(service, "look").last("result")["variables"] or os.environ.get("CUDA_VISIBLE_DEVICES")


def test_it_sees_what_it_needs_and_no_secrets(make: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "DATABASE_URL", VARIABLE):
        monkeypatch.setenv(name, "secret")
    allowed = Permissions(("/a.py",), {"judge": "http://x"})
    variables = ended(make(allowed, environment=[("OMP_NUM_THREADS", "1")]), "look").last("result")["variables"]
    assert not {"HF_TOKEN", "DATABASE_URL"} & set(variables) and variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"
    assert (variables[VARIABLE], variables["OMP_NUM_THREADS"]) == (allowed.as_text(), "1")
    assert ended(make(keep_hub_token=True), "look").last("result")["variables"]["HF_TOKEN"] == "secret"
