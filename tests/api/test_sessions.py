"""The sessions of docs/api.md against the running app."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from gradio_client.exceptions import AppError

from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.ui.app import Server
from tests.access import table
from tests.api.sessions import PLAIN, TOKEN, asking, code_of
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import Raw


def test_the_python_session_of_the_page_starts_waits_reads_and_forks(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = code_of("From Python").replace("http://127.0.0.1:7860/", server.url).replace("Bearer TOKEN", f"Bearer {TOKEN}")
    code = code.replace("verbose=False", "**PLAIN")
    before = asking(server.url)("list_runs")["all"]
    (tmp_path / "session.py").write_text(code, encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "session.py"), {"PLAIN": PLAIN})
    ask, run, better = names["ask"], names["run"], names["better"]
    status = ask("run_status", run=run)
    assert (status["state"], status["step"], status["seconds_left"], status["name"]) == ("finished", 20, None, "without KL")
    assert ask("wait_for_run", run=better)["parent"] == run
    config = server.workspace.reader(better).config()
    assert {name: getattr(config.ppo, name.removeprefix("ppo.")) for name in names["advice"]["settings"]} == names["advice"]["settings"]
    assert names["diagnosis"]["verdict"]["sentence"] in capsys.readouterr().out
    wish = {"recipe": "world", "settings": names["settings"], "name": "without KL", "request_id": "without-kl-1"}
    assert ask("start_training", **wish)["run"] == run and ask("list_runs")["all"] == before + 2  # asked again, it starts nothing more
    assert {"run": run, "total_steps": 20}.items() <= next(row for row in ask("list_runs")["runs"] if row["run"] == run).items()
    for other in ({"settings": "{}"}, {"name": "another"}):
        with pytest.raises(AppError, match=f"'without-kl-1' has started the run {run} with other settings"):
            ask("start_training", **(wish | other))
    assert ask("run_metrics", run=run, names="objective/scores")["metrics"]["objective/scores"]["values"][:2] == [0.1, 0.2]
    assert ask("check_settings", recipe="world", settings='{"ppo": {"steps": 2}, "engine.seed": 3}')["can_start"]


def test_what_cannot_be_done_is_a_sentence_and_starts_nothing(server: Server) -> None:
    theirs = FakeRun(server.workspace.root, read_from="verl")
    ask, before = asking(server.url, TOKEN), len(server.workspace.runs())
    for function, arguments, sentence in (
        ("score_text", {"prompt": "a", "response": "b", "run": theirs.run_id}, "is not known here. Leave run empty"),
        ("start_training", {"recipe": "word"}, "there is no recipe 'word'; there are: world"),
        ("start_training", {"recipe": "world", "settings": '{"ppo.steps": -1}'}, "ppo.steps: Should be at least 1"),
        ("start_training", {"recipe": "world", "settings": '{"ppo.step": 1}'}, "ppo.step"),
        ("start_training", {"recipe": "world", "settings": "ppo.steps: 3"}, "must be the text of a JSON object"),
        ("start_training", {"recipe": "world", "settings": '{"ppo.steps": NaN}'}, "must be the text of a JSON object"),
        ("start_training", {"recipe": "world", "request_id": "x" * 81}, "request_id has at most 80"),
        ("start_training", {"recipe": 3}, "recipe must be a text"),
        ("run_status", {"run": "../../etc"}, "There is no such run"),
        ("run_status", {"run": ""}, "There is no such run"),
        ("run_status", {"run": "mine"}, "named by its id, which list_runs gives"),
        ("run_status", {"run": "my run"}, "named by its id, which list_runs gives"),
        (
            "check_settings",
            {"recipe": "world", "settings": {"ppo.steps": 3}},
            r"must be a text of a JSON object, such as json.dumps\(",
        ),
        ("run_samples", {"run": "recording-improves", "step": 10_000}, "has no recorded responses of step 10000"),
        ("run_samples", {"run": "recording-improves", "step": 1.5}, "step must be a whole number"),
        ("run_metrics", {"run": "recording-improves", "names": "nothing"}, "no metric 'nothing'"),
        ("fork_run", {"run": "recording-improves"}, "recording"),
        ("fork_run", {"run": "recording-improves", "how": "sweep"}, "how must be"),
        ("score_text", {"prompt": "a", "response": "b", "settings": '{"reward.components": 3}'}, "settings must be in order"),
    ):
        with pytest.raises(AppError, match=sentence):
            ask(function, **arguments)
    assert len(server.workspace.runs()) == before


def test_a_fault_of_the_app_is_told_without_its_cause(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(run: str) -> None:
        raise KeyError("a secret path")

    monkeypatch.setattr(server.workspace, "status", broken)
    with pytest.raises(AppError, match="a fault in the app") as caught:
        asking(server.url)("run_status", run="x")
    assert "secret" not in str(caught.value) and "secret path" in caplog.text


def test_every_number_of_a_token_is_given_by_name(server: Server) -> None:
    """Those that the store has: the answer is compared with the record itself."""
    fake = FakeRun(server.workspace.root, steps=3)
    fake.run()
    fake.step(3)
    fake.finish()
    ask = asking(server.url)
    table_of_step = ask("run_samples", run=fake.run_id)
    record = server.workspace.reader(fake.run_id).rollout(3, 1)
    assert record.tokens is not None and table_of_step["step"] == 3 and table_of_step["steps"] == [1, 2, 3]
    assert table_of_step["samples"][1]["response"] == record.response and table_of_step["samples"][1]["parts"] == record.parts
    tokens = ask("run_samples", run=fake.run_id, sample=1)["tokens"]
    assert tokens["text"] == record.tokens.response_pieces and tokens["id"] == record.tokens.response_ids.tolist()
    for name, values in record.tokens.arrays.items():
        assert tokens[name] == pytest.approx(values.tolist(), rel=1e-4, abs=1e-6), name
    assert len(tokens["likeliest"]) == len(tokens["text"])


def test_every_function_tells_an_agent_what_it_does_and_takes(server: Server, raw: Raw) -> None:
    status, body = raw.send("GET", "/agents.md")
    page = body.decode()
    assert status == 200 and server.url in page and TOKEN not in page and "{" not in page.replace('{"', "").replace("{}", "")
    metrics = set(re.findall(r"\b(?:policy|objective|loss|val|tokens|gold|reward|time|speed)/\w+", page))
    assert len(metrics) > 2 and metrics <= {metric.name for metric in METRICS}
    _, info = raw.send("GET", "/gradio_api/info")
    named = json.loads(info)["named_endpoints"]
    assert {name.removeprefix("/") for name in named} == table.PROGRAMS
    for name, endpoint in named.items():
        assert f"### {name[1:]}\n" in page and len(endpoint["description"]) > 60, name
        assert [given["type"]["type"] for given in endpoint["returns"]] == ["string"], name
        for parameter in endpoint["parameters"]:
            assert f"- `{parameter['parameter_name']}` (" in page and parameter["type"]["type"] != "object", (name, parameter)
            told = parameter["python_type"]["description"]
            assert len(told) > 30 and told in page and parameter["example_input"] != "...", (name, parameter)


def test_curl_asks_by_name_and_reads_an_answer_once(raw: Raw) -> None:
    status, body = raw.send("POST", "/gradio_api/call/v2/run_status", {"run": "recording-improves"})
    assert status == 200
    event = json.loads(body)["event_id"]
    assert raw.send("GET", f"/gradio_api/call/run_status/{event}") == (200, b"event: complete\n")
    assert raw.send("GET", f"/gradio_api/call/run_status/{event}")[0] == 404
    assert raw.send("POST", "/gradio_api/call/run_status", {"data": ["recording-improves"]})[0] == 200
    for path, sent, sentence in (
        ("v2/run_status", {"ran": "x"}, b"There is no argument ran; there are: run."),
        ("v2/run_status", {}, b"The argument run is missing."),
        ("run_status", {"data": "x"}, b"a list of the arguments run"),
        ("v2/boot", {}, b"There is no such function; there are: list_recipes"),
        ("start_run", {"data": []}, b"There is no such function"),
    ):
        status, body = raw.send("POST", f"/gradio_api/call/{path}", sent)
        assert 400 <= status < 500 and sentence in body, (path, body)


def test_each_program_is_answered_in_its_own_language(server: Server) -> None:
    """Whoever asked first: Gradio's queue answers all calls from one task."""
    chinese, english = (asking(server.url, Cookie=f"rlhf_studio_language={name}") for name in ("zh", "en"))
    told = [json.dumps(ask("check_settings", recipe="world"), ensure_ascii=False) for ask in (english, chinese, english)]
    assert ["模型" in text for text in told] == [False, True, False] and told[0] == told[2]
