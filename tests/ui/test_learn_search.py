"""Search on the Learn page without a browser: what is found, where it leads, and that names of TRL are answered at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.trl_names import answers
from rlhf_studio.ui.learn.search import MOST, index, learn_search, named
from tests.ui.train_helpers import VIEWER


def search(query: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = learn_search({"query": query}, VIEWER)["results"]
    return results


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ("PolicyAndValueWrapper", {"lesson": "from_trl", "scene": "wrapper"}),
        ("null_ref_context", {"place": "tour", "show": "reference"}),
        ("generate_completions", {"lesson": "from_trl", "scene": "around"}),
        ("DataCollatorWithPadding", {"place": "tour", "show": "prompts"}),
        ("OnlineTrainerState", {"lesson": "from_trl", "scene": "around"}),
        ("padding_mask_p1", {"lesson": "from_trl", "scene": "metrics"}),
        ("INVALID_LOGPROB", {"lesson": "from_trl", "scene": "metrics"}),
        ("invalid_logprob", {"lesson": "from_trl", "scene": "metrics"}),
    ],
)
def test_a_name_of_trl_comes_first_with_its_answer(name: str, leads: dict[str, str]) -> None:
    first = search(name)[0]
    assert first["kind"] == "name" and first["title"].lower() == name.lower()
    assert first["answer"]["what"] and first["answer"]["see"]["to"] == leads


def test_every_name_of_trl_is_found_by_itself() -> None:
    for name in answers():
        assert named(name)[0].name.lower() == name.lower()


def test_a_symbol_leads_to_what_shows_it_and_names_its_file() -> None:
    (symbol,) = search("null_ref_context")[0]["answer"]["symbols"]
    assert symbol == {
        "symbol": "engine.models.reference.Reference.active",
        "path": "rlhf_studio/engine/models/reference.py",
        "to": {"place": "tour", "show": "reference"},
    }


def test_a_question_in_plain_words_finds_the_scene() -> None:
    first = search("why is KL negative")[0]
    assert (first["kind"], first["title"], first["to"]) == ("scene", "Why is my KL negative?", {"lesson": "rewards", "scene": "cut"})


def test_lessons_scenes_questions_terms_stations_and_code_are_found() -> None:
    wanted = {
        "When a token stops pushing": ("lesson", {"lesson": "clip"}),
        "four numbers make a batch": ("scene", {"lesson": "from_trl", "scene": "one_batch"}),
        "does this row need padding": ("question", {"place": "tour", "show": "prompts"}),
        "mean probability ratio of new to old policy": ("term", {}),
        "classifier last token no padding": ("station", {"place": "tour", "show": "pooling"}),
        "shape_rewards": ("code", {"place": "tour", "show": "rewards"}),
        "searchsorted": ("code", {"place": "tour", "show": "sampling"}),
    }
    for query, (kind, to) in wanted.items():
        assert (kind, to) in [(result["kind"], result["to"]) for result in search(query)[:5]], query


def test_all_words_must_be_there_and_beginnings_of_words_count() -> None:
    assert search("kl xyzzy") == []
    assert search("whiten")[0]["title"] != "" and {"place": "tour", "show": "whitening"} in [result["to"] for result in search("whiteni")]
    assert len(search("the")) <= MOST and len(search("token")) == MOST


@pytest.mark.parametrize("query", ["", "   ", None, 5, ["kl"], "/", "()", "x" * 5000])
def test_what_is_no_query_finds_nothing(query: Any) -> None:
    assert [result for result in search(query) if result["kind"] != "name"] == []


def test_every_result_leads_to_a_place_that_exists() -> None:
    scenes = {(entry.name, scene.name) for entry in shelf.entries() for scene in shelf.text_of(entry.name).scenes}
    stations = {entry.name for entry in shelf.entries(shelf=shelf.TOUR)}
    for entry in index():
        if "place" in entry.to:
            assert f"{entry.to['place']}.{entry.to['show']}" in stations
        elif "scene" in entry.to:
            assert (entry.to["lesson"], entry.to["scene"]) in scenes
        else:
            assert entry.kind == "term" or entry.to["lesson"] in {lesson for lesson, _ in scenes}


def test_searching_loads_no_torch() -> None:
    code = "import sys; from rlhf_studio.ui.learn.search import found; found('null_ref_context'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
