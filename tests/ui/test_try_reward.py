"""Trying a reward on a text: who may, what the helper is asked, how a page follows it, and that the helper ends."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlhf_studio.config import HttpReward, Permissions, PythonReward, RunConfig, permissions_from_flags
from rlhf_studio.config.permissions import VARIABLE
from rlhf_studio.config_io import ConfigError
from rlhf_studio.recipes import load_recipe
from rlhf_studio.ui import app as app_module
from rlhf_studio.ui import try_reward as try_reward_module
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.app import launch, main
from rlhf_studio.ui.command import command_line
from rlhf_studio.ui.form import describe_form, values_of
from rlhf_studio.ui.outlook import sentence
from rlhf_studio.ui.serving.server import AppServer
from rlhf_studio.ui.try_reward import TryReward, request_of
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.train_helpers import OPERATOR, VIEWER

# A stand-in for the helper: it does what the prompt says.
HELPER = """
import json, os, sys, threading
def say(message): print(json.dumps(message), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    say({"progress": "Loading", "fraction": 0.5})
    if asked["prompt"] == "hang": threading.Event().wait()
    elif asked["prompt"] == "end": os._exit(3)
    elif asked["prompt"] == "garbage": print("garbage", flush=True)
    elif asked["prompt"] == "refuse": say({"error": "no GPU"})
    else: say({"result": {"asked": asked, "pid": os.getpid(), "allowed": os.environ.get("VARIABLE", "")}})
""".replace("VARIABLE", VARIABLE)
VALUES = values_of(load_recipe("world").config)


def sent(prompt: str = "fine", **changes: Any) -> dict[str, Any]:
    texts = {"prompt": prompt, "response": "r", "reference": None, "stopped": True}
    return {"op": "start", "values": VALUES, **texts, "view": False, **changes}


@pytest.fixture
def make() -> Iterator[Callable[..., TryReward]]:
    made = []

    def make(access: Access | None = None, permissions: Permissions | None = None) -> TryReward:
        made.append(TryReward(access or Access(), permissions or Permissions(), [sys.executable, "-c", HELPER]))
        return made[-1]

    yield make
    for one in made:
        one.close()


def follow(one: TryReward, answer: dict[str, Any]) -> dict[str, Any]:
    """Poll as the page does, until it is done."""
    deadline = time.monotonic() + 30
    while answer["state"] == "working":
        assert time.monotonic() < deadline
        answer = one.ask({"op": "poll", "number": answer["number"]}, OPERATOR)
    return answer


def test_a_text_is_scored_by_the_helper(make: Callable[..., TryReward]) -> None:
    one = make()
    first = one.ask(sent(), OPERATOR)
    assert (first["state"], first["number"]) == ("working", 1) and first["progress"]
    done = follow(one, first)
    asked = done["result"]["asked"]
    assert done["state"] == "done"
    assert (asked["prompt"], asked["response"], asked["reference"], asked["stopped"]) == ("fine", "r", None, True)
    assert asked["config"]["reward"] == json.loads(json.dumps(load_recipe("world").config.reward.model_dump(mode="json")))
    again = follow(one, one.ask(sent(stopped=False, reference="x"), OPERATOR))
    assert again["number"] == 2 and again["result"]["pid"] == done["result"]["pid"], "the helper is kept"
    assert (again["result"]["asked"]["stopped"], again["result"]["asked"]["reference"]) == (False, "x")


def test_progress_is_told_and_one_text_is_scored_at_a_time(make: Callable[..., TryReward]) -> None:
    one = make()
    answer = one.ask(sent("hang"), OPERATOR)
    deadline = time.monotonic() + 30
    while answer["progress"] != "Loading":
        assert time.monotonic() < deadline
        answer = one.ask({"op": "poll", "number": 1}, OPERATOR)
    assert answer["fraction"] == 0.5
    assert "Another text is being scored" in one.ask(sent(), OPERATOR)["error"]
    assert "no longer being scored" in one.ask({"op": "poll", "number": 7}, OPERATOR)["error"]
    assert follow(one, one.ask({"op": "cancel", "number": 1}, OPERATOR)) == {"state": "failed", "number": 1, "error": "Stopped."}
    assert follow(one, one.ask(sent(), OPERATOR))["state"] == "done"
    assert one.ask({"op": "cancel", "number": 2}, OPERATOR)["state"] == "done"  # too late, and harmless


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("end", "The helper process failed: it ended with exit code 3"),
        ("garbage", "The helper process failed: its answer is not a JSON object"),
        ("refuse", "no GPU"),
    ],
)
def test_a_helper_that_fails(make: Callable[..., TryReward], prompt: str, part: str) -> None:
    one = make()
    failed = follow(one, one.ask(sent(prompt), OPERATOR))
    assert failed["state"] == "failed" and part in failed["error"]
    assert follow(one, one.ask(sent(), OPERATOR))["state"] == "done"


def test_a_silent_helper_is_ended(make: Callable[..., TryReward], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_reward_module, "PATIENCE", 0.3)
    one = make()
    assert "Nothing was heard for 0.3 seconds" in follow(one, one.ask(sent("hang"), OPERATOR))["error"]


def test_a_helper_that_cannot_be_started() -> None:
    one = TryReward(Access(), Permissions(), ["/no/such/program"])
    assert follow(one, one.ask(sent(), OPERATOR))["error"] == "The helper process could not be started: No such file or directory"
    one.close()


def test_only_operators(make: Callable[..., TryReward]) -> None:
    one = make()
    for data, request in ((sent(), VIEWER), (sent(view=True), OPERATOR), ({"op": "poll", "number": 1}, VIEWER), (None, VIEWER)):
        assert one.ask(data, request)["error"] == Access().why_not(None)
    reading = make(Access(Mode.READ_ONLY))
    assert "read-only" in reading.ask(sent(), OPERATOR)["error"]
    assert one._process is None and reading._process is None


@pytest.mark.parametrize("data", [None, 3, {}, {"op": "poll"}, {"op": "cancel", "number": "1"}, {"op": "erase"}])
def test_questions_that_are_none(make: Callable[..., TryReward], data: Any) -> None:
    assert make().ask(data, OPERATOR)["state"] == "failed"


def test_settings_that_are_wrong_are_told_before_anything_starts(make: Callable[..., TryReward]) -> None:
    one = make()
    components = [{"kind": "length", "target": -1}]
    answer = one.ask(sent(values={**VALUES, "reward.components": components}), OPERATOR)
    assert answer["problems"][0]["field"] == "reward.components.0.target" and one._process is None
    for changes in ({"prompt": 3}, {"response": None}, {"prompt": "x" * 50_001}, {"reference": 1}):
        assert "must be a text" in one.ask(sent(**changes), OPERATOR)["problems"][0]["message"]
    assert one.ask(sent(values=3), OPERATOR)["state"] == "failed"


def test_other_sections_need_not_be_in_order() -> None:
    values = {**VALUES, "ppo.steps": -1, "model.dtype": "x", "engine.seed": 5, "reward.score_clip": 2.0}
    config = RunConfig.model_validate(request_of(sent(values=values))["config"])
    assert (config.reward.score_clip, config.engine.seed, config.model, config.ppo) == (2.0, 5, RunConfig().model, RunConfig().ppo)
    with pytest.raises(ConfigError, match="reward.score_clip"):
        request_of(sent(values={**values, "reward.score_clip": -2}))


def test_the_helper_gets_the_permissions_of_the_app(make: Callable[..., TryReward], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "from elsewhere")
    given = Permissions(("/a.py",), {"judge": "http://x"})
    for permissions in (Permissions(), given):
        one = make(permissions=permissions)
        assert follow(one, one.ask(sent(), OPERATOR))["result"]["allowed"] == permissions.as_text()


def test_the_helper_ends_after_idle_minutes_and_with_the_app(make: Callable[..., TryReward], monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[Any] = []

    class Timer:
        daemon = False

        def __init__(self, seconds: float, action: Callable[[], None]):
            self.seconds, self.action, self.running = seconds, action, False
            timers.append(self)

        def start(self) -> None:
            self.running = True

        def cancel(self) -> None:
            self.running = False

    monkeypatch.setattr(threading, "Timer", Timer)
    one = make()
    pid = follow(one, one.ask(sent(), OPERATOR))["result"]["pid"]
    settled(one)
    assert timers[-1].running and timers[-1].seconds == 600 and psutil.pid_exists(pid)
    follow(one, one.ask(sent(), OPERATOR))
    settled(one)
    assert [timer.running for timer in timers] == [False, True]
    timers[-1].action()
    assert not psutil.pid_exists(pid)
    other = follow(one, one.ask(sent(), OPERATOR))["result"]["pid"]
    assert other != pid
    working = one.ask(sent("hang"), OPERATOR)
    timers[-1].action()  # fires just as a new text is being scored
    assert psutil.pid_exists(other)
    one.close()
    assert not psutil.pid_exists(other)
    assert one.ask({"op": "poll", "number": working["number"]}, OPERATOR)["error"] == "Stopped."
    assert one.ask(sent(), OPERATOR)["error"] == "The app is stopping."


def test_the_app_ends_at_once_while_the_helper_is_being_started(make: Callable[..., TryReward], monkeypatch: pytest.MonkeyPatch) -> None:
    one = make()
    work, closing, started = one._work, threading.Event(), []

    def late(*given: Any) -> None:
        assert closing.wait(30)
        work(*given)

    cancel = one._cancel

    def cancelled(job: Any) -> None:
        cancel(job)
        closing.set()

    monkeypatch.setattr(one, "_work", late)
    monkeypatch.setattr(one, "_cancel", cancelled)
    monkeypatch.setattr(try_reward_module, "LineProcess", lambda *given, **named: started.append(given))
    asked = one.ask(sent("hang"), OPERATOR)
    one.close()
    assert started == []
    assert one.ask({"op": "poll", "number": asked["number"]}, OPERATOR)["error"] == "Stopped."


def settled(one: TryReward) -> None:
    """The answer is there a moment before the thread that fetched it ends."""
    assert one._thread is not None
    one._thread.join()


# --- what the app is started with ------------------------------------------------------------------------------------------------


def test_the_form_suggests_what_was_allowed() -> None:
    permissions = Permissions(("/a.py", "/a.py"), {"judge": "http://x"})
    kinds = {component["kind"]: component for component in describe_form(permissions)["components"]}
    assert kinds["python"]["fields"][0]["suggestions"] == ["/a.py"] and kinds["http"]["fields"][0]["suggestions"] == ["judge"]
    assert "suggestions" not in {component["kind"]: component for component in describe_form()["components"]}["http"]["fields"][0]
    assert kinds["ensemble"]["fields"][0]["lines"]
    weight = next(field for field in kinds["ensemble"]["fields"] if field["name"] == "std_weight")
    assert weight["used_when"] == {"name": "combine", "value": "mean_minus_std"}
    assert {component["group"] for component in kinds.values()} == {"Models", "Rules", "Against a reference", "Your own"}


def test_the_command_says_what_must_be_allowed() -> None:
    world = load_recipe("world").config
    components = [PythonReward(file="my rewards.py"), PythonReward(file="my rewards.py", name="b"), HttpReward(server="judge")]
    config = world.model_copy(update={"reward": world.reward.model_copy(update={"components": components})})
    assert command_line(config, "world", world).endswith(" --allow-custom-rewards 'my rewards.py' --reward-url judge=URL")
    assert "the function score, b and the server judge score each" in sentence(config, load_recipe("world"))


def test_the_app_takes_the_flags_and_hands_them_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def score(p, r): ...")
    seen: list[Permissions] = []
    monkeypatch.setattr(AppServer, "start", lambda self: None)
    monkeypatch.setattr(app_module, "Dispatcher", lambda workspace, start: seen.append(start.keywords["permissions"]))
    monkeypatch.setattr(app_module.Server, "wait", lambda self: seen.append(self.services.try_reward._permissions))
    flags = ["--workspace", str(tmp_path / "w"), "--allow-custom-rewards", str(file), "--reward-url", "judge=http://x"]
    assert main(flags) == 0
    given = permissions_from_flags([str(file)], ["judge=http://x"])
    assert seen == [given, given]
    assert main([*flags, "--host", "0.0.0.0"]) == 2
    assert "--allow-custom-rewards works only when the app listens on this machine alone" in capsys.readouterr().err
    assert main(["--workspace", str(tmp_path / "w"), "--reward-url", "judge"]) == 2
    assert "NAME=URL" in capsys.readouterr().err
    seen.clear()
    assert main(["--workspace", str(tmp_path / "w"), "--reward-url", "judge=http://x", "--host", "0.0.0.0"]) == 0
    assert seen[0].urls == {"judge": "http://x"}


def test_an_app_without_flags_starts_engines_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(AppServer, "start", lambda self: None)
    monkeypatch.setattr(app_module, "Dispatcher", lambda workspace, start: started.append(start))
    launch(tmp_path).close()
    assert started == [app_module.start_engine]
    server = launch(tmp_path, keep_hub_token=True)
    server.close()
    assert started[1].func is app_module.start_engine and started[1].keywords == {"keep_hub_token": True}
    assert server.services.try_reward._keep_hub_token
