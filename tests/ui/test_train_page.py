"""The Train page's answers, without a browser: what is said about settings, and what starts a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.config import RunConfig, short_name
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.io import config_from_yaml, parse_config, with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.inputs.models import facts
from rlhf_studio.inputs.prompts import cached
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import OnlyRead, StoreError
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui import once, outlook
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.forecast import estimate
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.live.page import LIKE_IT, OF_REPLAYED
from rlhf_studio.ui.problems import plain
from rlhf_studio.ui.train_page import TrainPage
from rlhf_studio.ui.visiting.allowed import Budget
from rlhf_studio.units import duration
from tests.runs.test_checkpoints import folder_of, write
from tests.ui.train_helpers import OPERATOR, PROMPT, VIEWER, install_world

WORLD = load_recipe("world")


class Bench(Workspace):
    """A page whose runs only exist on a list."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.submitted: list[tuple[RunConfig, str]] = []
        self.memory: list[tuple[int, int] | None] = []
        self.error: Exception | None = None
        self.page = TrainPage(self, Access(), lambda: len(self.submitted))

    def submit(self, config: Any, name: str = "", memory: tuple[int, int] | None = None, *_: Any, **__: Any) -> str:
        if self.error:
            raise self.error
        self.submitted.append((config, name))
        self.memory.append(memory)
        return f"run-{len(self.submitted)}"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    install_world(tmp_path, monkeypatch)
    return Bench(tmp_path)


def sent(basis: str = "world", **changes: Any) -> dict[str, Any]:
    """What the browser sends: the recipe's values with changes; ``ppo__steps=3`` sets ``ppo.steps``."""
    values = values_of(load_recipe(basis).config)
    values.update({name.replace("__", "."): value for name, value in changes.items()})
    return {"values": json.loads(json.dumps(values)), "basis": basis, "view": False}


def fields(answer: dict[str, Any]) -> list[str]:
    return [problem["field"] for problem in answer["problems"]]


def test_the_page_draws_itself_from_one_answer(bench: Bench) -> None:
    boot = bench.page.boot({}, OPERATOR)
    assert json.loads(json.dumps(boot, allow_nan=False)) == boot
    assert [card["name"] for card in boot["recipes"]][:2] == ["world", "world-lora"]
    assert boot["recipes"][0]["tags"] == ["about 1 minute", "no download"]
    tags = {card["name"]: card["tags"] for card in boot["recipes"]}["tldr-pythia-1b"]
    assert tags == ["downloads about 8 GB", "needs an 80 GB GPU"]
    first = bench.page.first({}, OPERATOR)  # the first screen's, without the form
    assert {key: first[key] for key in ("own", "stages", "operator")} == {key: boot[key] for key in ("own", "stages", "operator")}
    assert len(json.dumps(first)) < len(json.dumps(boot)) / 10
    assert (
        bench.page.check({"basis": "world-lora", "as_it_is": True}, OPERATOR)["command"]
        == "python -m rlhf_studio train --recipe world-lora"
    )
    like = bench.page.check(LIKE_IT, OPERATOR)  # all as it is, but for what is named
    changed = "--lora.r 4 --lora.alpha 8.0 --ppo.steps 36 --ppo.kl_coef 0.0"
    assert like["command"] == f"python -m rlhf_studio train --recipe world-lora {changed}"
    assert Budget().problems(with_values(load_recipe("world-lora").config, OF_REPLAYED), load_recipe("world-lora")) == []
    assert boot["operator"]
    assert not bench.page.boot({"view": True}, OPERATOR)["operator"]
    assert not bench.page.boot({}, VIEWER)["operator"]


def test_a_recipe_as_it_stands_can_start(bench: Bench) -> None:
    answer = bench.page.check(sent(), OPERATOR)
    assert (answer["problems"], answer["notes"]) == ([], [])
    assert answer["command"] == "python -m rlhf_studio train --recipe world"
    assert answer["sentence"] == outlook.sentence(WORLD.config, WORLD)
    assert answer["watch"] == WORLD.watch != ""
    assert [figure["label"] for figure in answer["figures"]] == ["Time", "Download", "Disk"]
    # the small stand-in names no layers: what is known is listed, and nothing is guessed
    assert answer["memory"]["state"] == "unknown" and answer["measure"] is None
    assert {row["name"]: row["size"] for row in answer["memory"]["rows"]}["Activations"] == "unknown"


SIZES = {"n_layer": 1, "n_embd": 4, "n_head": 1}


def give_sizes(folder: Path) -> None:
    """Let the bundled stand-ins name their layers."""
    for name in ("policy", "reward"):
        path = folder / "assets" / "world" / name / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **SIZES}))


def test_the_memory_is_planned_before_the_start(bench: Bench, tmp_path: Path) -> None:
    give_sizes(tmp_path)
    memory = bench.page.check(sent(), OPERATOR)["memory"]
    assert memory["state"] in ("fits", "tight", "too_large") and "free" in memory["free"]
    assert {row["name"] for row in memory["rows"]} >= {"Policy", "Reference", "Critic", "Reward models", "Optimizer", "KV cache"}
    assert json.loads(json.dumps(memory)) == memory
    assert bench.page.check(sent(), VIEWER)["memory"] is None  # viewers learn nothing about this machine
    assert bench.page.check(sent(ppo__steps=0), OPERATOR)["memory"] is None


def test_measuring_the_machine_gives_a_time_where_nothing_better_is_known(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_sizes(tmp_path)
    begun: list[str] = []
    monkeypatch.setattr(bench.page._speed, "begin", begun.append)
    monkeypatch.setattr("rlhf_studio.inputs.preflight.look.find_device", lambda *_: processor())
    assert bench.page.check(sent(), OPERATOR)["measure"] is None  # the recipe's own time is better
    other = sent(reward__components=[{"kind": "length"}])
    answer = bench.page.check(other, OPERATOR)
    assert answer["measure"] == {"device": "cpu", "running": False} and answer["figures"][0] == outlook.UNKNOWN_TIME
    bench.page.measure({"device": "cpu"}, OPERATOR)
    bench.page.measure({"device": "; rm"}, OPERATOR)
    assert begun == ["cpu", "cpu"]
    with pytest.raises(gr.Error, match="operator link"):
        bench.page.measure({"device": "cpu"}, VIEWER)
    (tmp_path / "machine-cpu.json").write_text('{"rate": 1e9}')
    answer = bench.page.check(other, OPERATOR)
    assert answer["measure"] is None
    assert [figure["label"] for figure in answer["figures"]] == ["Time", "Download", "Disk"]
    assert "matrix rate" in answer["figures"][0]["help"]


def test_a_measurement_that_cannot_start_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OSError(11, "no process")

    monkeypatch.setattr(bench.page._speed, "begin", fail)
    with pytest.raises(gr.Error, match="could not be started"):
        bench.page.measure({}, OPERATOR)


def test_an_earlier_run_tells_the_time(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "20260101-000000-aaaaaa"
    create_run(folder, WORLD.config, name="earlier")
    with RunWriter(folder) as writer:
        for step, seconds in enumerate((9.0, 3.0), start=1):
            writer.commit_step(StepRecord(step, {"time/total": seconds}, []))
    figures = bench.page.check(sent(), OPERATOR)["figures"]
    assert figures[0] | {"help": ""} == {"label": "Time", "value": "about 1.5 minutes on this machine", "help": ""}
    assert figures[0]["help"].startswith("3 s a round")


def test_cards_page_and_phone_tell_the_same_time(bench: Bench, tmp_path: Path) -> None:
    """A machine that takes twelve times as long for one recipe does so for its neighbours, whoever asks."""
    seconds = 12 * WORLD.minutes * 60 / WORLD.config.ppo.steps
    # An old one of a quiet day; of the newest three the fastest counts.
    for name, each in (("20260101-000000-aaaaaa", 1.0), *((f"2026010{day}-000000-bbbbbb", seconds) for day in (2, 3, 4))):
        folder = tmp_path / "runs" / name
        create_run(folder, WORLD.config, name="earlier")
        with RunWriter(folder) as writer:
            writer.commit_step(StepRecord(1, {"time/total": each}, []))
    timed = [recipe for recipe in bench.page._recipes.values() if recipe.minutes]
    assert {recipe.stage for recipe in timed} >= {"ppo", "sft", "dpo"}
    for who in (OPERATOR, VIEWER):
        cards = {card["name"]: card["tags"][0] for card in bench.page.boot({}, who)["recipes"]}
        for recipe in timed:
            expected_time = f"about {duration(60 * 12 * recipe.minutes)}"
            assert cards[recipe.name] == expected_time
            assert bench.page.check(sent(recipe.name), who)["figures"][0]["value"] == f"{expected_time} on this machine"


def test_start_queues_exactly_the_settings_on_the_page(bench: Bench) -> None:
    outcome = bench.page.start({**sent(ppo__steps=5, name="mine"), "nonce": "n1"}, OPERATOR)
    assert outcome == {"run_id": "run-1", "nonce": "n1"}
    config, name = bench.submitted[0]
    assert (config.ppo.steps, config.recipe, name) == (5, "world", "mine")
    assert config == WORLD.config.model_copy(update={"name": "mine", "ppo": config.ppo})
    bench.page.start({**sent(), "nonce": "n2"}, OPERATOR)
    assert bench.submitted[1][1] == ""  # then the workspace names it


def make_parent(folder: Path, **ppo: Any) -> str:
    """A run in the bench's workspace, with the settings of a recipe and some of its own; returns its id."""
    config = parse_config({**WORLD.config.model_dump(mode="json"), "ppo": {**WORLD.config.ppo.model_dump(mode="json"), **ppo}})
    create_run(folder / "runs" / "parent", config, name="Tiny world")
    return "parent"


def test_a_run_that_starts_from_anothers_settings_is_kept_as_its_variation(bench: Bench, tmp_path: Path) -> None:
    parent = make_parent(tmp_path)
    request = {**sent(ppo__kl_coef=0.2), "parent": parent}
    origin = bench.page.check(request, OPERATOR)["origin"]
    assert (origin["name"], origin["step"]) == ("Tiny world, KL coefficient 0.2", None) and "begins at step 1" in origin["text"]
    workspace = Workspace(tmp_path)
    page = TrainPage(workspace, Access())
    started = workspace.status(page.start({**request, "nonce": "n"}, OPERATOR)["run_id"])
    assert started.name == "Tiny world, KL coefficient 0.2"
    assert (started.origin.parent, started.origin.parent_step, started.origin.changes) == (parent, None, {"ppo.kl_coef": 0.2})
    named = page.start({**sent(ppo__kl_coef=0.2, name="mine"), "parent": parent, "nonce": "m"}, OPERATOR)["run_id"]
    assert workspace.status(named).name == "mine" and workspace.status(named).origin.changes == {"ppo.kl_coef": 0.2}


@pytest.mark.parametrize(("parent", "words"), [("gone", "There is no run 'gone'"), ("../parent", "There is no such run")])
def test_a_parent_that_is_no_run_starts_nothing(parent: str, words: str, bench: Bench) -> None:
    request = {**sent(), "parent": parent, "nonce": "n"}
    origin = bench.page.check(request, OPERATOR)["origin"]
    assert origin["step"] is None and "no longer there" in origin["text"]
    assert words in bench.page.start(request, OPERATOR)["problems"][0]["message"] and bench.submitted == []


@pytest.mark.parametrize("parent", ["", 7, ["parent"], None])
def test_settings_that_came_from_no_run(parent: Any, bench: Bench) -> None:
    request = {**sent(), "parent": parent, "nonce": "n"}
    assert bench.page.check(request, OPERATOR)["origin"] is None and bench.page.start(request, OPERATOR)["run_id"] == "run-1"


def test_settings_of_a_failed_run_resume_it_where_its_checkpoint_allows_them(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = make_parent(tmp_path)
    folder = tmp_path / "runs" / parent
    with RunWriter(folder) as writer:
        for step in (1, 2, 3):
            writer.commit_step(StepRecord(step, {"objective/scores": 0.1}, []))
        writer.set_state("failed", cause="the loss is not finite")
    ask = lambda **changes: {**sent(**changes), "parent": parent}  # noqa: E731
    assert "has no checkpoint" in bench.page.check(ask(), OPERATOR)["origin"]["text"]
    write(folder_of(folder, 2), 2, RunReader(folder).recorded_at(2))
    mended = ask(ppo__learning_rate=1e-6)
    origin = bench.page.check(mended, OPERATOR)["origin"]
    assert origin["step"] == 2 and "begins at step 1" in origin["text"] and "can also go on" in origin["text"]
    origin = bench.page.check(ask(engine__seed=5), OPERATOR)["origin"]
    assert origin["step"] is None and "cannot go on from step 2 with these settings: Seed" in origin["text"]
    refused = bench.page.start({**ask(engine__seed=5), "resume": True, "nonce": "a"}, OPERATOR)
    assert fields(refused) == ["engine.seed"] and RunReader(folder).config() == WORLD.config
    assert bench.page.start({**mended, "resume": True, "nonce": "b"}, OPERATOR)["run_id"] == parent
    status = Workspace(tmp_path).status(parent)
    assert (status.state, status.queue_position) == ("queued", 1) and bench.submitted == []
    assert RunReader(folder).config().ppo.learning_rate == 1e-6


def test_a_recording_as_parent_is_refused_as_one_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_world(tmp_path, monkeypatch)
    workspace = Workspace(tmp_path, Recordings(cache_folder=tmp_path / "cache"))
    page = TrainPage(workspace, Access())
    request = {**sent(), "parent": RECORDINGS[0].run_id, "nonce": "n"}
    origin = page.check(request, OPERATOR)["origin"]
    assert (origin["step"], origin["text"]) == (None, str(OnlyRead()))
    for resume in (False, True):
        (problem,) = page.start({**request, "resume": resume, "nonce": str(resume)}, OPERATOR)["problems"]
        assert "This is a recording" in problem["message"]
    assert workspace.runs() == []


def test_the_estimate_that_the_page_showed_goes_with_the_run(bench: Bench, tmp_path: Path) -> None:
    bench.page.start({**sent(), "nonce": "no sizes"}, OPERATOR)
    give_sizes(tmp_path)
    estimate = bench.page._inspect(WORLD.config, tmp_path).memory_estimate
    bench.page.start({**sent(), "nonce": "sizes"}, OPERATOR)
    assert estimate is not None and bench.memory == [None, (estimate.low, estimate.high)]


def test_a_double_click_starts_one_run(bench: Bench) -> None:
    request = {**sent(), "nonce": "same"}
    assert [bench.page.start(request, OPERATOR)["run_id"] for _ in range(100)] == ["run-1"] * 100
    assert len(bench.submitted) == 1


def test_only_so_many_starts_are_remembered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "REMEMBERED", 20)
    for number in range(25):
        bench.page.start({**sent(), "nonce": f"n{number}"}, OPERATOR)
    for number, submitted in ((24, 25), (5, 25), (4, 26)):  # the last 20 are
        bench.page.start({**sent(), "nonce": f"n{number}"}, OPERATOR)
        assert len(bench.submitted) == submitted


@pytest.mark.parametrize("nonce", [None, "", 7, ["n"], "n" * 81])
def test_what_is_no_nonce_is_not_remembered(nonce: Any, bench: Bench) -> None:
    outcomes = [bench.page.start({**sent(), "nonce": nonce}, OPERATOR) for _ in range(2)]
    assert [outcome["nonce"] for outcome in outcomes] == ["", ""] and len(bench.submitted) == 2


def test_viewers_start_nothing(bench: Bench) -> None:
    with pytest.raises(gr.Error, match="operator link"):
        bench.page.start(sent(), VIEWER)
    assert bench.submitted == []


BAD_VALUES = {
    "ppo.kl_coef": [float("nan"), float("inf"), -1, "abc", "", None, [1], {"a": 1}, 1e9],
    "ppo.steps": [True, 0, 1.5, "60", 10**30, -5],
    "model.policy": ["", 3, "x" * 5000, "./no-such-folder"],
    "generation.stop_token": ["end", "999"],
    "lora.enabled": [1, "yes"],
    "data.prompts": ["./none.csv"],
    "reward.components": [[], None, "x", [{"kind": "magic"}]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD_VALUES.items() for value in values])
def test_a_bad_value_is_named_and_starts_nothing(name: str, value: Any, bench: Bench) -> None:
    data = sent()
    data["values"][name] = value
    checked, started = bench.page.check(data, OPERATOR), bench.page.start({**data, "nonce": "n"}, OPERATOR)
    assert all(field == name or field.startswith(f"{name}.") for field in fields(checked)), checked
    assert checked["problems"] and started["problems"] == checked["problems"]
    assert bench.submitted == []


@pytest.mark.parametrize(
    "data", [None, [], "x", 3, {}, {"values": None}, {"values": []}, {"values": {"ppo": 1, "ppo.steps": 2}, "basis": 7}]
)
def test_anything_else_than_settings_starts_nothing_and_breaks_nothing(data: Any, bench: Bench) -> None:
    for ask in (bench.page.check, bench.page.to_yaml, bench.page.start):
        assert ask(data, OPERATOR)["problems"]
    assert bench.page.preview(data, OPERATOR)["rows"] == []
    assert bench.page.from_yaml(data, OPERATOR)["problems"]
    assert bench.submitted == []


def test_problems_of_all_sections_are_shown_together_in_the_order_of_the_form(bench: Bench) -> None:
    data = sent(ppo__kl_coef=-1, data__column="text", model__policy="./none")
    answer = bench.page.check(data, OPERATOR)
    assert fields(answer) == ["model.policy", "data.column", "ppo.kl_coef"]
    assert answer["problems"][2]["message"] == "Should be at least 0, not -1"
    assert (answer["sentence"], answer["command"]) == ("", "")


def test_settings_that_must_fit_together(bench: Bench) -> None:
    answer = bench.page.check(sent(ppo__mini_batch_size=128), OPERATOR)
    assert answer["problems"] == [
        {"field": "ppo.mini_batch_size", "message": "128 is larger than batch_size 64; use at most the batch size"}
    ]


def test_unknown_settings_are_refused(bench: Bench) -> None:
    data = sent()
    data["values"]["ppo.magic"] = 1
    assert bench.page.check(data, OPERATOR)["problems"] == [{"field": "ppo.magic", "message": "There is no such setting"}]


def test_a_problem_without_a_setting_comes_first(bench: Bench, tmp_path: Path) -> None:
    bench.error = StoreError("The disk is full.", "full")
    outcome = bench.page.start({**sent(), "nonce": "n"}, OPERATOR)
    assert outcome["problems"] == [{"field": "", "message": "The run could not be created: The disk is full."}]
    bench.error = None
    assert bench.page.start({**sent(), "nonce": "n"}, OPERATOR)["run_id"] == "run-1"


def test_the_queue_is_counted(bench: Bench) -> None:
    bench.page.start({**sent(), "nonce": "n"}, OPERATOR)
    assert bench.page.check(sent(), OPERATOR)["waiting"] == 1


def test_plain_words() -> None:
    assert plain("input should be greater than 0, not -1") == "Should be above 0, not -1"
    assert plain("input should be less than or equal to 1, not 2") == "Should be at most 1, not 2"
    assert plain("needs a value") == "Needs a value"
    assert plain("") == ""


@pytest.mark.parametrize(
    "message",
    ["lvwerra/gpt2-imdb holds no model", "gpt2 has no tokenizer", "config.json of x is not valid JSON", "policy is a file"],
)
def test_names_of_models_and_files_keep_their_case(message: str) -> None:
    assert plain(message, {"policy"}) == message


def test_a_model_with_a_plain_name_keeps_its_case_on_the_page(bench: Bench) -> None:
    (problem,) = [
        problem for problem in bench.page.check(sent(model__policy="distilled"), OPERATOR)["problems"] if problem["field"] == "model.policy"
    ]
    assert "distilled" in problem["message"] and "Distilled" not in problem["message"]


# --- viewers look at the form, not at the machine ----------------------------------------------------------------------------------


def test_viewers_learn_nothing_about_files(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hidden\n")
    data = sent(data__prompts=str(tmp_path / "secret.txt"), model__policy=str(tmp_path / "nowhere"))
    assert bench.page.check(data, VIEWER)["problems"] == []
    preview = bench.page.preview(data, VIEWER)
    assert preview == {"rows": [], "message": "Only operators see the rows of files on this machine."}
    assert bench.page.preview(sent(data__column="none"), VIEWER)["message"].startswith("There is no column 'none'")
    assert len(bench.page.preview(sent(), VIEWER)["rows"]) == 5
    assert bench.page.preview(sent(model__policy=str(tmp_path / "assets/world/policy")), VIEWER)["rows"][0]["tokens"] is None


# --- preview and YAML ----------------------------------------------------------------------------------------------------------------


def test_the_first_prompts_with_their_token_counts(bench: Bench) -> None:
    preview = bench.page.preview(sent(), OPERATOR)
    assert preview["total"] == 90
    assert preview["rows"][0] == {"text": f"{PROMPT} 0", "tokens": 6, "cut": False}
    assert bench.page.preview(sent(data__max_prompt_tokens=3), OPERATOR)["rows"][0]["cut"]


def test_the_preview_says_how_long_prompts_are_and_what_is_left_out(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("label,prompt\n1,the film was\n2,\n3,the\n4,the film\n")
    preview = bench.page.preview(sent(data__prompts=str(tmp_path / "p.csv"), data__min_prompt_tokens=2), OPERATOR)
    assert json.loads(json.dumps(preview)) == preview
    assert [row["text"] for row in preview["rows"]] == ["the film was", "the film"]
    assert preview["notes"] == ["Not used: the column 'label'.", "2 of 4 rows were left out: 1 blank, 1 with fewer than 2 tokens."]
    assert {name: preview["lengths"][name] for name in ("least", "median", "most")} == {"least": 2, "median": 2, "most": 3}
    assert (preview["columns"], preview["total"], preview["whole"]) == (["label", "prompt"], 2, True)


def test_chats_are_shown_once_the_template_is_known(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "assets" / "world" / "policy"
    data = sent(data__chat_template=True)
    waiting = {"rows": [], "message": "The prompts appear here once the policy and its chat template can be read."}
    assert bench.page.preview(data, OPERATOR) == waiting
    assert fields(bench.page.check(data, OPERATOR)) == ["data.chat_template"]
    (folder / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>")
    assert bench.page.preview(data, VIEWER)["rows"][0]["text"] == f"<user>{PROMPT} 0<assistant>"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert bench.page.preview(data, OPERATOR) == waiting


def test_nothing_is_fetched_for_viewers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(cached, "_remote", cached.RemoteMemory(refuse))
    data = sent(data__prompts="owner/set")
    assert bench.page.preview(data, VIEWER)["message"] == "Only operators see the rows of files on this machine."
    assert bench.page.check(data, VIEWER)["problems"] == []


@pytest.mark.parametrize(
    "change",
    [{"data__prompts": "./none.txt"}, {"engine__seed": "x", "data__max_prompts": 0}, {"data__max_prompts": 0}, {"data__column": None}],
)
def test_no_rows_while_the_prompts_cannot_be_read(change: dict[str, Any], bench: Bench) -> None:
    assert bench.page.preview(sent(**change), OPERATOR) == {
        "rows": [],
        "message": "The first rows appear here once the prompts can be read.",
    }


@pytest.mark.parametrize("change", [{"model__policy": "./none"}, {"model__policy": 3}, {"model__revision": None}])
def test_rows_without_counts_while_the_policy_cannot_be_read(change: dict[str, Any], bench: Bench) -> None:
    assert bench.page.preview(sent(**change), OPERATOR)["rows"][0]["tokens"] is None


def test_settings_as_yaml_and_back(bench: Bench) -> None:
    saved = bench.page.to_yaml(sent("world-lora", ppo__steps=7), OPERATOR)
    assert saved["file_name"] == "world-lora.yaml"
    assert config_from_yaml(saved["text"]).ppo.steps == 7
    loaded = bench.page.from_yaml({"text": saved["text"]}, OPERATOR)
    values = sent("world-lora", ppo__steps=7)["values"]
    assert loaded == {"values": values, "chosen": list(values), "basis": "world-lora"}
    assert bench.page.from_yaml({"text": saved["text"].replace("world-lora", "moon")}, OPERATOR)["basis"] == "world"


def test_a_loaded_file_stands_on_the_recipe_that_it_names(bench: Bench) -> None:
    """As on the command line; of one's own model only what the file gives is chosen, also where it is the value that the card has."""
    loaded = bench.page.from_yaml({"text": "recipe: world-lora\nppo: {steps: 3}"}, OPERATOR)
    assert loaded["values"] == sent("world-lora", ppo__steps=3)["values"]
    steps = load_recipe("own").config.model_dump()["ppo"]["steps"]
    loaded = bench.page.from_yaml({"text": f"recipe: own\nppo: {{steps: {steps}, batch_size: 6}}"}, OPERATOR)
    assert loaded == {"values": {"ppo.steps": steps, "ppo.batch_size": 6}, "chosen": ["ppo.steps", "ppo.batch_size"], "basis": "own"}
    for text, field in (
        ("recipe: moon\nppo: {steps: 3}", "recipe"),
        ("recipe: world-sft\nstage: ppo", "stage"),
        ("ppo.steps: 3", "ppo.steps"),
    ):
        assert fields(bench.page.from_yaml({"text": text}, OPERATOR)) == [field]


@pytest.mark.parametrize("model", ["bundled/world-policy", "nobody/there"])
def test_a_check_reads_the_models_files_once(model: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    find_model = facts.find_model
    monkeypatch.setattr(facts, "find_model", lambda name, *rest: read.append(name) or find_model(name, *rest))
    components = [{"kind": "length", "target": 24}]
    chosen = {"model.policy": model, "data.prompts": "bundled/world-prompts", "reward.components": components}
    page = {**sent("own"), "chosen": list(chosen)}
    answer = bench.page.check({**page, "values": page["values"] | chosen}, OPERATOR)
    assert read == [model] and fields(answer) == (["model.policy"] if model == "nobody/there" else [])


def test_what_was_brought_is_no_setting_to_undo(bench: Bench) -> None:
    keeps = {card["name"]: card["keeps"] for card in bench.page.boot({}, OPERATOR)["own"]}
    assert {"model.policy", "model.revision", "data.prompts", "data.column", "data.eval", "reward.components"} <= set(keeps["own"])
    assert {"data.source", "data.chosen_column", "data.eval_split"} <= set(keeps["own-dpo"])
    assert not {"ppo.steps", "data.chat_template", "data.eval_share", "lora.enabled", "reward.scaling"} & set(keeps["own"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "][",
        "- a",
        "ppo: {steps: nan}",
        "ppo: {steps: 1, steps: 2}",
        "!!python/object:os.system {}",
        "name: 2020-13-01",
        "x" * 1_000_001,
    ],
)
def test_a_file_that_is_no_configuration(text: str, bench: Bench) -> None:
    assert bench.page.from_yaml({"text": text}, OPERATOR)["problems"]


def test_bad_settings_are_not_saved(bench: Bench) -> None:
    assert fields(bench.page.to_yaml(sent(ppo__steps=0), OPERATOR)) == ["ppo.steps"]


# --- what will happen -----------------------------------------------------------------------------------------------------------------


def changed(**sections: Any) -> RunConfig:
    data = WORLD.config.model_dump()
    for section, values in sections.items():
        data[section].update(values)
    return RunConfig.model_validate(data)


def test_the_sentence() -> None:
    config = changed(ppo={"steps": 1, "batch_size": 8, "mini_batch_size": 8, "ppo_epochs": 1}, lora={"enabled": True, "r": 4})
    assert outlook.sentence(config, WORLD) == (
        "The model world-policy, with LoRA adapters of rank 4, writes 8 film reviews, a judge (sentiment) scores each, "
        "and what scored high becomes likelier. 1 round, 8 film reviews in all."
    )
    saved = changed(model={"policy": "/runs/mine/step-000030/policy/"})
    assert outlook.sentence(saved, WORLD).startswith("The model writes 64")
    other = changed(model={"policy": "gpt2"})
    assert "writes 64 responses," in outlook.sentence(other, WORLD) and outlook.watch(other, WORLD) == ""


@pytest.mark.parametrize(
    ("components", "words"),
    [
        ([{"kind": "reward_model", "model": "someone/judge"}], " a judge (judge) scores each"),
        ([{"kind": "length"}, {"kind": "regex", "name": "ends well"}], " the length rule and ends well score each"),
        (
            [{"kind": "length"}, {"kind": "regex"}, {"kind": "keywords"}],
            " the length rule, the regex rule and the keywords rule score each",
        ),
        ([{"kind": "length"}] * 4, " 4 reward components score each"),
    ],
)
def test_who_scores(components: list[dict[str, Any]], words: str) -> None:
    assert words in outlook.sentence(changed(reward={"components": components}), WORLD)


def test_time_scales_with_the_work_while_the_models_are_the_recipes(tmp_path: Path) -> None:
    def time(config: RunConfig) -> str:
        known = estimate(config, tmp_path, {}, WORLD)
        return known.text if known else outlook.unknown_time(config)["value"]

    per_run = WORLD.minutes
    assert time(WORLD.config) == f"about {duration(60 * per_run)}"
    assert time(changed(ppo={"steps": WORLD.config.ppo.steps * 100})) == f"about {duration(60 * 100 * per_run)}"
    with_rule = [*WORLD.config.model_dump()["reward"]["components"], {"kind": "length"}]
    assert time(changed(reward={"components": with_rule})) == f"about {duration(60 * per_run)}"
    for other in ({"model": {"policy": "gpt2"}}, {"reward": {"components": with_rule[1:]}}, {"lora": {"enabled": True}}):
        assert time(changed(**other)) == "known after the first round"


def test_a_recipe_that_nobody_timed_has_no_estimate(tmp_path: Path) -> None:
    recipe = load_recipe("gpt2-imdb")
    assert estimate(recipe.config, tmp_path, {recipe.name: recipe}) is None


def test_short_names() -> None:
    assert [short_name(name) for name in ("a/b", "C:\\x\\y", "/x/", "/")] == ["b", "y", "x", "/"]


def test_ones_own_prompts_bring_their_own_held_out_ones(bench: Bench) -> None:
    """Those of a bundled recipe are film reviews."""
    own = sent(data__prompts="somebody/elses")
    assert any("come from bundled/world-prompts-heldout, not from your data" in note for note in inspected_notes(own))


def inspected_notes(data: dict[str, Any]) -> list[str]:
    from rlhf_studio.config.io import parse_config
    from rlhf_studio.inputs.preflight.ppo import ppo_notes
    from rlhf_studio.ui.form import nested

    return list(ppo_notes(parse_config({**nested(data["values"]), "recipe": "world"}), None, 0))


def test_risky_settings_are_told_to_viewers_too_and_never_block(bench: Bench) -> None:
    risky = sent(ppo__learning_rate=0.9, generation__top_k=5, generation__top_p=0.5)
    for person in (OPERATOR, VIEWER):
        answer = bench.page.check(risky, person)
        assert answer["problems"] == []
        rate, cut = answer["risks"]
        assert (rate["level"], rate["title"]) == ("alarm", "Learning rate 0.9 is 4,500 times the recipe's.")
        assert (rate["field"], rate["changes"], rate["use"]) == ("ppo.learning_rate", {"ppo.learning_rate": 2e-4}, "Use 0.0002")
        assert cut["use"] == "Use Top-k 0 and Top-p 1" and cut["level"] == "warning"
        assert not any("Sampling" in note for note in answer["notes"]), "one cause, one sentence"
    assert "run_id" in bench.page.start(risky, OPERATOR)


def test_without_a_price_on_moving_away_the_button_gives_the_recipes_price(bench: Bench) -> None:
    rate, price = bench.page.check(sent(ppo__learning_rate=0.9, ppo__kl_coef=0.0), OPERATOR)["risks"]
    assert rate["changes"] == {"ppo.learning_rate": 2e-4} and price["changes"] == {"ppo.kl_coef": WORLD.config.ppo.kl_coef}


def test_one_cause_is_said_once_though_two_settings_name_it(bench: Bench, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    answer = bench.page.check(sent(model__policy=gone, model__reference=gone), OPERATOR)
    assert fields(answer) == ["model.policy"]
    assert fields(bench.page.check(sent(model__policy=gone, model__reference=gone + "2"), OPERATOR)) == ["model.policy", "model.reference"]


def test_only_a_setting_that_must_not_be_empty_is_told_to_lack_a_value(bench: Bench, tmp_path: Path) -> None:
    """A setting that may be empty gets its own message at once when being empty is wrong."""
    (tmp_path / "chats.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    )
    values = values_of(load_recipe("world-sft").config)
    problem_of = {}
    for source in ("", str(tmp_path / "chats.jsonl")):
        data = {"values": {**values, "data.source": source, "data.eval": ""}, "basis": "world-sft"}
        problem_of |= {problem["field"]: problem for problem in bench.page.check(data, OPERATOR)["problems"]}
    assert "lacks" in problem_of["data.source"] and "lacks" not in problem_of["data.messages_column"]
    assert "data.chat_template" in problem_of["data.messages_column"]["message"]
