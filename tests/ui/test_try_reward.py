"""Trying a reward on a text: who may, what the helper is asked, how a page follows it, and what the app is started with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.config import HttpReward, Permissions, PythonReward, RunConfig, permissions_from_flags
from rlhf_studio.config.io import ConfigError
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import app as app_module
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.app import launch, main
from rlhf_studio.ui.command import command_line
from rlhf_studio.ui.form import describe_form, values_of
from rlhf_studio.ui.outlook import sentence
from rlhf_studio.ui.scoring.playground import RewardPlayground
from rlhf_studio.ui.scoring.sent import rewards_request
from rlhf_studio.ui.scoring.try_it import TryReward
from rlhf_studio.ui.serving.server import AppServer
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.scoring_stand_in import COMMAND
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import wait_until

VALUES = values_of(load_recipe("world").config)


def sent(prompt: str = "fine", **changes: Any) -> dict[str, Any]:
    texts = {"prompt": prompt, "response": "r", "reference": None, "stopped": True}
    return {"op": "start", "values": VALUES, **texts, "view": False, **changes}


@pytest.fixture
def make() -> Iterator[Callable[..., TryReward]]:
    service = Service("score", command=COMMAND)
    yield lambda access=None: TryReward(access or Access(), service)
    service.close()


def follow(page: TryReward, answer: dict[str, Any]) -> dict[str, Any]:
    """Poll as the page does, until it is done."""
    answers = [answer]

    def done() -> bool:
        answers.append(page.try_reward({"op": "poll", "key": answer["key"]}, OPERATOR))
        return answers[-1]["state"] != "working"

    wait_until(done)
    return answers[-1]


def test_a_text_waits_while_the_playground_is_at_work() -> None:
    """Both share a process; only another text of Try it is refused."""
    service = Service("score", command=COMMAND)
    try:
        page = TryReward(Access(), service)
        playground = service.submit(rewards_request(sent("hang")))
        waiting = page.try_reward(sent(), OPERATOR)
        assert waiting["state"] == "working"
        assert "scored at the moment" in page.try_reward(sent(), OPERATOR)["error"]
        service.cancel(playground)
        assert follow(page, waiting)["state"] == "done"
    finally:
        service.close()


def test_a_text_is_scored(make: Callable[..., TryReward]) -> None:
    page = make()
    first = page.try_reward(sent(), OPERATOR)
    assert first["state"] == "working" and first["progress"]
    done = follow(page, first)
    request = done["result"]["request"]
    assert (done["state"], request["prompt"], request["response"], request["reference"], request["stopped"]) == (
        "done",
        "fine",
        "r",
        None,
        True,
    )
    assert request["config"]["reward"] == json.loads(json.dumps(load_recipe("world").config.reward.model_dump(mode="json")))
    again = follow(page, page.try_reward(sent(stopped=False, reference="x"), OPERATOR))["result"]["request"]
    assert (again["stopped"], again["reference"]) == (False, "x")
    assert follow(page, page.try_reward(sent("refuse"), OPERATOR)) | {"key": ""} == {"state": "failed", "key": "", "error": "no GPU"}


def test_progress_is_told_and_one_text_is_scored_at_a_time(make: Callable[..., TryReward]) -> None:
    page = make()
    key = page.try_reward(sent("hang"), OPERATOR)["key"]
    wait_until(lambda: page.try_reward({"op": "poll", "key": key}, OPERATOR)["progress"].startswith("Loading"))
    assert page.try_reward({"op": "poll", "key": key}, OPERATOR)["fraction"] == 0.25
    assert "Another text is being scored" in page.try_reward(sent(), OPERATOR)["error"]
    assert "no longer being scored" in page.try_reward({"op": "poll", "key": "other"}, OPERATOR)["error"]
    assert follow(page, page.try_reward({"op": "cancel", "key": key}, OPERATOR)) == {"state": "failed", "key": key, "error": "Stopped."}
    last = follow(page, page.try_reward(sent(), OPERATOR))
    assert page.try_reward({"op": "cancel", "key": last["key"]}, OPERATOR)["state"] == "done"  # too late, and harmless


def test_the_playground_is_answered_by_the_same_process_one_after_the_other(make: Callable[..., TryReward], tmp_path: Path) -> None:
    page = make()
    playground = RewardPlayground(Workspace(tmp_path), Access(), page._service)
    hangs = page.try_reward(sent("hang"), OPERATOR)["key"]
    waits = playground.playground_ask({"model": "bundled/world-reward"}, OPERATOR)["key"]
    assert json.loads(playground.playground_news({"key": waits}, OPERATOR).body) == {
        "state": "waiting", "place": 1, "events": [], "more": False
    }  # fmt: skip
    page.try_reward({"op": "cancel", "key": hangs}, OPERATOR)
    wait_until(lambda: json.loads(playground.playground_news({"key": waits}, OPERATOR).body)["state"] == "done")
    process = page._service.pid
    assert follow(page, page.try_reward(sent(), OPERATOR))["state"] == "done" and page._service.pid == process is not None


def test_only_operators(make: Callable[..., TryReward]) -> None:
    page = make()
    for data, request in ((sent(), VIEWER), (sent(view=True), OPERATOR), ({"op": "poll", "key": "x"}, VIEWER), (None, VIEWER)):
        assert page.try_reward(data, request)["error"] == Access().why_not(None)
    assert "read-only" in make(Access(Mode.READ_ONLY)).try_reward(sent(), OPERATOR)["error"]
    for none in (None, 3, {}, {"op": "poll"}, {"op": "cancel", "key": 1}, {"op": "erase"}):
        assert page.try_reward(none, OPERATOR)["state"] == "failed", none
    assert page._service.pid is None


def test_settings_that_are_wrong_are_told_before_anything_starts(make: Callable[..., TryReward]) -> None:
    page = make()
    components = [{"kind": "length", "target": -1}]
    answer = page.try_reward(sent(values={**VALUES, "reward.components": components}), OPERATOR)
    assert answer["problems"][0]["field"] == "reward.components.0.target" and page._service.pid is None
    for changes in ({"prompt": 3}, {"response": None}, {"prompt": "x" * 50_001}, {"reference": 1}):
        assert "must be a text" in page.try_reward(sent(**changes), OPERATOR)["problems"][0]["message"]
    assert page.try_reward(sent(values=3), OPERATOR)["state"] == "failed"


def test_other_sections_need_not_be_in_order() -> None:
    values = {**VALUES, "ppo.steps": -1, "model.dtype": "x", "engine.seed": 5, "reward.score_clip": 2.0}
    config = RunConfig.model_validate(rewards_request(sent(values=values))["config"])
    assert (config.reward.score_clip, config.engine.seed, config.model, config.ppo) == (2.0, 5, RunConfig().model, RunConfig().ppo)
    with pytest.raises(ConfigError, match="reward.score_clip"):
        rewards_request(sent(values={**values, "reward.score_clip": -2}))


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
    permissions_seen: list[Permissions] = []
    monkeypatch.setattr(AppServer, "start", lambda self: None)
    monkeypatch.setattr(app_module, "Dispatcher", lambda workspace, start: permissions_seen.append(start.keywords["permissions"]))
    monkeypatch.setattr(app_module.Server, "wait", lambda self: permissions_seen.append(self.services.score._permissions))
    flags = ["--workspace", str(tmp_path / "w"), "--allow-custom-rewards", str(file), "--reward-url", "judge=http://x"]
    assert main(flags) == 0
    given = permissions_from_flags([str(file)], ["judge=http://x"])
    assert permissions_seen == [given, given]
    assert main([*flags, "--host", "0.0.0.0"]) == 2
    assert "--allow-custom-rewards works only when the app listens on this machine alone" in capsys.readouterr().err
    assert main(["--workspace", str(tmp_path / "w"), "--reward-url", "judge"]) == 2
    assert "NAME=URL" in capsys.readouterr().err
    permissions_seen.clear()
    assert main(["--workspace", str(tmp_path / "w"), "--reward-url", "judge=http://x", "--host", "0.0.0.0"]) == 0
    assert permissions_seen[0].urls == {"judge": "http://x"}


def test_an_app_without_flags_starts_engines_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(AppServer, "start", lambda self: None)
    monkeypatch.setattr(app_module, "Dispatcher", lambda workspace, start: started.append(start))
    launch(tmp_path).close()
    assert started == [app_module.start_engine]
    server = launch(tmp_path, keep_hub_token=True)
    server.close()
    assert started[1].func is app_module.start_engine and started[1].keywords == {"keep_hub_token": True}
    assert server.services.score._keep_hub_token
