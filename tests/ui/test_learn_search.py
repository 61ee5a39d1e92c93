"""Search on the Learn page without a browser: what is found, where it leads, and that names of TRL are answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.trl_names import answers
from rlhf_studio.ui.learn.search import MOST, index, learn_search, named
from rlhf_studio.ui.learn.search_words import PAGES, stem
from tests.ui.train_helpers import VIEWER


def search(query: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = learn_search({"query": query}, VIEWER)["results"]
    return results


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ("PolicyAndValueWrapper", {"lesson": "from_trl", "scene": "wrapper"}),
        ("null_ref_context", {"lesson": "reference", "scene": "switch"}),
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
        assert (kind, to) in [(result["kind"], result["to"]) for result in search(query)[:5]], (
            query,
            [(result["kind"], result["to"]) for result in search(query)[:5]],
        )


def led_to(result: dict[str, Any]) -> str:
    """The lesson or the station of a result, and its scene; for a page outside Learn where that is."""
    to = result["to"]
    return to.get("show") or "/".join(filter(None, (to.get("lesson"), to.get("scene")))) or result["where"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("advantages backwards", "gae/right_to_left"),
        ("start of train", "before_the_loop"),
        ("four models", "reference/memory"),
        ("merge_and_unload", "lora/start_and_merge"),
        ("ZeRO-3", "reference/memory"),
        ("normalize advantages", "gae/whitening"),
        ("standardizing the advantages", "whitening"),
        ("why mask query", "logprobs/which_tokens"),
        ("gradient ratio 1.3 negative advantage", "clip/ratio"),
        ("k1 vs k3", "rewards/dice"),
        ("beta", "rewards"),
        ("gamma and lambda", "gae"),
        ("γ", "gae"),
        ("what happens after stop token", "query_and_response/only_the_response"),
        ("reward hacking", "what_goes_wrong/two_curves"),
        ("PPO vs DPO", "beyond"),
        ("GPU memory", "lora/memory"),
        ("how much memory for a 7B", "docs/planner.md"),
        ("save checkpoint", "Runs tab"),
        ("resume training", "Runs tab"),
        ("multi-GPU", "docs/many-gpus.md"),
        ("win rate", "Evaluate tab"),
        ("chat template", "docs/data.md"),
        ("stats tensors", "Live tab"),
        ("value model", "policy_and_value"),
    ],
)
def test_a_plain_question_finds_its_place_among_the_first_three(query: str, wanted: str) -> None:
    assert wanted in [led_to(result) for result in search(query)[:3]]


def test_half_of_the_words_must_be_there_and_more_of_them_come_first() -> None:
    assert search("xyzzy plugh") == [] and search("kl xyzzy plugh") == []
    assert [led_to(result) for result in search("kl xyzzy")[:3]] == [led_to(result) for result in search("kl") if result["kind"] != "name"][
        :3
    ]
    assert "whitening" in [led_to(result) for result in search("whiteni")[:5]]
    assert len(search("the")) <= MOST and len(search("token")) == MOST


@pytest.mark.parametrize(
    "alike",
    [
        "advantage advantages",
        "normalise normalize normalised normalizing normalization",
        "clip clips clipped clipping",
        "token tokens",
        "policy policies",
        "mask masked masks",
        "process processes",
        "loss losses",
    ],
)
def test_forms_of_a_word_have_one_stem(alike: str) -> None:
    assert len({stem(word) for word in alike.split()}) == 1
    assert len({stem(word) for word in ("loss", "log", "whiten", "bias", "ratio", "king")}) == 6


def test_a_formula_is_found_by_its_letters_and_shown_as_dots() -> None:
    gae = [entry for entry in index() if entry.to == {"place": "tour", "show": "gae"} and entry.kind == "station"]
    letters = {letter for entry in gae for letter in entry.letters.split()}
    assert {"gamma", "lambda"} <= letters and not any("γ" in entry.text for entry in gae)
    assert [led_to(result) for result in search("γ")] == [led_to(result) for result in search("gamma") if result["kind"] != "name"]


def test_every_page_outside_learn_exists() -> None:
    root = Path(__file__).parents[2]
    tabs = (root / "rlhf_studio/ui/app.py").read_text()
    for where, title, text in PAGES:
        assert title and text
        assert (root / where).is_file() if where.startswith("docs/") else f'gr.Tab("{where.removesuffix(" tab")}"' in tabs, where


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
            assert entry.kind in ("term", "page") or entry.to["lesson"] in {lesson for lesson, _ in scenes}
