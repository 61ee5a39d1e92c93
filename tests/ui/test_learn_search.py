"""Search on the Learn page without a browser: what is found, where it leads, and that names of TRL are answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_studio.lessons import shelf
from rlhf_studio.trl.names import answers
from rlhf_studio.ui.learn.search import MOST, index, learn_search, named
from rlhf_studio.ui.learn.search_places import OTHER_WORDS, PAGES, plain
from tests.ui.train_helpers import VIEWER

NAMES = [
    ("PolicyAndValueWrapper", {"lesson": "from_trl", "scene": "wrapper"}),
    ("null_ref_context", {"lesson": "reference", "scene": "switch"}),
    ("generate_completions", {"lesson": "from_trl", "scene": "around"}),
    ("DataCollatorWithPadding", {"place": "tour", "show": "prompts"}),
    ("OnlineTrainerState", {"lesson": "from_trl", "scene": "around"}),
    ("padding_mask_p1", {"lesson": "from_trl", "scene": "metrics"}),
    ("INVALID_LOGPROB", {"lesson": "from_trl", "scene": "metrics"}),
    ("invalid_logprob", {"lesson": "from_trl", "scene": "metrics"}),
]
"""Names of TRL, and where their answer leads."""

QUESTIONS = [
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
]
"""Plain questions, and a place that is among the first three results."""

FOUND = {
    "why is KL negative": ("scene", {"lesson": "rewards", "scene": "cut"}),
    "When a token stops pushing": ("lesson", {"lesson": "clip"}),
    "four numbers make a batch": ("scene", {"lesson": "from_trl", "scene": "one_batch"}),
    "does this row need padding": ("question", {"place": "tour", "show": "prompts"}),
    "mean probability ratio of new to old policy": ("term", {}),
    "classifier last token no padding": ("station", {"place": "tour", "show": "pooling"}),
    "shape_rewards": ("code", {"place": "tour", "show": "rewards"}),
    "searchsorted": ("code", {"place": "tour", "show": "sampling"}),
}
"""One of each kind, among the first five."""


def search(query: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = learn_search({"query": query}, VIEWER)["results"]
    return results


def led_to(result: dict[str, Any]) -> str:
    """The lesson or the station of a result, and its scene; for a page outside Learn where that is."""
    to = result["to"]
    return to.get("show") or "/".join(filter(None, (to.get("lesson"), to.get("scene")))) or result["where"]


def test_what_is_found_for_which_question() -> None:
    wrong = []
    for query, expected in QUESTIONS:
        if expected not in (first_three := [led_to(result) for result in search(query)[:3]]):
            wrong.append(f"{query}: {first_three}, not {expected}")
    for query, (kind, to) in FOUND.items():
        if (kind, to) not in (results := [(result["kind"], result["to"]) for result in search(query)[:5]]):
            wrong.append(f"{query}: {results}, not {to}")
    for name, leads in NAMES:
        first = search(name)[0]
        if (first["kind"], first["title"].lower()) != ("name", name.lower()) or first["answer"]["see"]["to"] != leads:
            wrong.append(f"{name}: {first}")
    assert wrong == []


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


def test_results_with_all_words_come_first_and_a_word_may_be_only_begun() -> None:
    assert search("xyzzy plugh") == []
    assert led_to(search("kl xyzzy")[0]) in [led_to(result) for result in search("kl")]
    for begun in ("whi", "whiten", "whiteni", "whitenin", "whitening"):
        assert "whitening" in [led_to(result) for result in search(begun)[:5]], begun
    assert len(search("the")) <= MOST and len(search("token")) == MOST


def test_forms_and_spellings_of_a_word_find_the_same() -> None:
    for alike in ("advantage advantages", "normalise normalize normalised normalizing", "clip clips clipped", "policy policies", "γ gamma"):
        first, *others = ([result for result in search(word) if result["kind"] != "name"] for word in alike.split())
        leads = [led_to(result) for result in first[:3]]
        assert leads and all(leads == [led_to(result) for result in other[:3]] for other in others), alike
    assert plain("PolicyAndValueWrapper, γ and a normalised noise") == "policy and value wrapper,  gamma  and a normalized noise"


def test_nothing_that_a_person_types_is_an_error_of_the_index() -> None:
    for query in ("", "   ", None, 5, ["kl"], "/", "()", "*", '"', "-", "\x00", "x" * 5000):
        assert [result for result in search(query) if result["kind"] != "name"] == [], query
    for query in ('"kl', "kl*", "(kl)", "kl:", "^kl", "{kl}", "kl AND", "NOT kl", "NEAR(kl", 'kl" OR "', "kl\x00", "+kl -", "title:kl"):
        assert search(query), query


def test_letters_of_every_script_are_words() -> None:
    assert search("\u4ef7\u503c\u51fd\u6570") == []  # there is no Chinese text yet, and asking for one is no error


def test_a_formula_is_found_by_its_letters_and_shown_as_dots() -> None:
    gae = [entry for entry in index().entries if entry.to == {"place": "tour", "show": "gae"} and entry.kind == "station"]
    letters = {letter for entry in gae for letter in entry.other.split()}
    assert {"gamma", "lambda"} <= letters and not any("γ" in entry.text for entry in gae)


def test_every_result_leads_to_a_place_that_exists() -> None:
    root = Path(__file__).parents[2]
    tabs = (root / "rlhf_studio/ui/app.py").read_text()
    for where, title, text in PAGES:
        assert title and text
        assert (root / where).is_file() if where.startswith("docs/") else f'gr.Tab("{where.removesuffix(" tab")}"' in tabs, where
    scenes = {(entry.name, scene.name) for entry in shelf.entries() for scene in shelf.text_of(entry.name).scenes}
    stations = {entry.name for entry in shelf.entries(shelf=shelf.TOUR)}
    for entry in index().entries:
        if "place" in entry.to:
            assert f"{entry.to['place']}.{entry.to['show']}" in stations
        elif "scene" in entry.to:
            assert (entry.to["lesson"], entry.to["scene"]) in scenes
        else:
            assert entry.kind in ("term", "page") or entry.to["lesson"] in {lesson for lesson, _ in scenes}
    known = {lesson for lesson, _ in scenes} | {f"{lesson}/{scene}" for lesson, scene in scenes} | stations
    assert set(OTHER_WORDS) <= known
