"""What a replay shows: what was recorded, nothing in place of what was not, and moments with their sentences."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.phrases import Rising
from rlhf_studio.analysis.doctor.run_data import RunCache, RunData
from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.analysis.replay.answers import MOST_ANSWERS, MOST_TOKENS, advantages, answers_of
from rlhf_studio.analysis.replay.moments import MOST_MOMENTS, moments_of, told
from rlhf_studio.analysis.replay.payload import on_one_scale, shown_rows, timing
from rlhf_studio.analysis.replay.scale import OneScale
from rlhf_studio.config import RunConfig
from rlhf_studio.ppo.kl_control import AdaptiveKL
from rlhf_studio.runs.records import Origin, SettingChange, WatchRecord
from tests.analysis.doctor.stored_runs import stored
from tests.replay.runs import record
from tests.runs.store_helpers import rollout, token_record

FIXED = {"reward": {"components": [{"kind": "length"}]}, "ppo": {"gamma": 1.0, "lam": 0.5}}


def watched(step: int, score: float = 1.0, **changes: Any) -> WatchRecord:
    arrays = {"kl": np.array([1.0, 0.0, 2.0]), "values": np.array([0.5, 0.2, 0.1])}
    given = {"sample": 0, "prompt": "say", "response": "a b.", "score": score, "gold": 0.25, "kl": 3.0, "stopped": True}
    return WatchRecord(**{**given, "pieces": [" a", " b", "."], "arrays": {k: v.astype(np.float32) for k, v in arrays.items()}, **changes})


def made(steps: int = 40, **changes: Any) -> RunData:
    """A run in memory whose settings nobody knows."""
    run = RunData(RunConfig(), "finished", "", "cpu", steps, np.arange(1, steps + 1), {}, origin=Origin(settings_known=False))
    return replace(run, **changes)


def kinds(run: RunData) -> list[tuple[int, str]]:
    return [(moment["step"], moment["kind"]) for moment in moments_of(run, [])]


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    reader = record(tmp_path / "run", [0.0, float("nan"), 1.0], metrics=[{"objective/kl": 0.5}, {}, {"objective/kl": 2.0}])
    shown = replay_of(reader)
    assert shown["series"] == {"score": [0.0, None, 1.0], "gold": None, "kl": [0.5, None, 2.0]}
    assert (shown["steps"], shown["of"], shown["one_scale"], shown["answers"], shown["tokens"]) == ([1, 2, 3], 3, False, [], None)
    assert 20 <= shown["seconds"] <= 120
    assert [mark["kind"] for mark in shown["marks"]] == ["first", "last"]


def test_a_run_with_nothing_to_replay_says_why(tmp_path: Path) -> None:
    assert replay_of(record(tmp_path / "run", [1.0])) == {
        "run": "run",
        "title": "run",
        "problem": "There is nothing to replay yet: a replay needs two recorded steps.",
    }


def test_advantages_worked_by_hand() -> None:
    # δ = -0.3, -0.1, 0.9; A₂ = 0.9, A₁ = -0.1 + 0.5 · 0.9, A₀ = -0.3 + 0.5 · 0.35
    values = np.array([0.5, 0.2, 0.1])
    assert advantages(np.array([0.0, 0.0, 1.0]), values, 1.0, 0.5).tolist() == pytest.approx([-0.125, 0.35, 0.9])


def test_the_tokens_of_a_watched_answer_have_the_advantages_that_it_would_have(tmp_path: Path) -> None:
    reader = record(
        tmp_path / "run",
        [0.0, 1.0],
        watched=[[watched(1)], [watched(2, score=2.0)]],
        metrics=[{"objective/kl_coef": 0.1}, {"objective/kl_coef": 0.2}],
        **FIXED,
    )
    shown = replay_of(reader)
    (answer,) = shown["answers"]
    assert (answer["prompt"], answer["watched"], [frame["step"] for frame in answer["frames"]]) == ("say", True, [1, 2])
    first, last = answer["frames"]
    assert (first["tokens"], first["score"], first["gold"], first["stopped"], first["left_out"]) == ([" a", " b", "."], 1.0, 0.25, True, 0)
    # as above; both were drawn after an update, so β is 0.2, that of the second step: r = -0.2, 0, 1 - 0.4 and -0.2, 0, 2 - 0.4
    assert first["values"] == pytest.approx([-0.5 + 0.5 * 0.15, -0.1 + 0.5 * 0.5, 0.5])
    assert last["values"] == pytest.approx([-0.5 + 0.5 * 0.65, -0.1 + 0.5 * 1.5, 1.5])
    assert shown["tokens"] == {"quantity": "advantages", "label": "advantage", "centre": 0.0, "limit": 1.5}


def test_after_the_newest_step_the_controller_says_what_a_nat_costs(tmp_path: Path) -> None:
    controller = AdaptiveKL(0.2, target=6.0, horizon=100)
    controller.update(4.9, episodes=64)
    adaptive = {"kl_controller": "adaptive", "kl_target": 6.0, "kl_horizon": 100, "batch_size": 64}
    metrics = [{"objective/kl_coef": 0.2, "objective/kl": kl} for kl in (9.0, 4.9)]
    settings = {**FIXED, "ppo": {**FIXED["ppo"], **adaptive}}
    shown = replay_of(record(tmp_path / "run", [0.0, 1.0], watched=[[watched(1)], [watched(2)]], metrics=metrics, **settings))
    first, last = (frame["values"][-1] for frame in shown["answers"][0]["frames"])
    assert first == pytest.approx(1 - 2 * 0.2 - 0.1) and last == pytest.approx(1 - 2 * controller.coef - 0.1, abs=5e-4)


def test_where_nobody_knows_what_a_nat_costs_the_colour_is_the_kl(tmp_path: Path) -> None:
    shown = replay_of(record(tmp_path / "run", [0.0, 1.0], watched=[[watched(1)], [watched(2)]], **FIXED))
    assert shown["tokens"] == {"quantity": "kl", "label": "KL", "centre": 0.0, "limit": 2.0}


@pytest.mark.parametrize("shaped", [{"score_clip": 1.0}, {"scaling": "scale"}, {"length_penalty": 0.1}])
def test_where_the_score_is_shaped_the_colour_is_the_kl(tmp_path: Path, shaped: dict[str, Any]) -> None:
    settings = {**FIXED, "reward": {**FIXED["reward"], **shaped}}
    shown = replay_of(record(tmp_path / "run", [0.0, 1.0], watched=[[watched(1)], [watched(2)]], **settings))
    assert shown["tokens"]["quantity"] == "kl" and shown["answers"][0]["frames"][0]["values"] == [1.0, 0.0, 2.0]


def test_without_watched_prompts_those_that_were_sampled_most_often(tmp_path: Path) -> None:
    names = [["a", "b"], ["c", "a"], ["a", "b"]]
    tokens = token_record(2, pieces=[" x", "."])
    steps = [[rollout(row, prompt=name, tokens=tokens if name == "a" else None) for row, name in enumerate(own)] for own in names]
    answers = replay_of(record(tmp_path / "run", [0.0, 1.0, 2.0], rollouts=steps))["answers"]
    assert [(one["prompt"], one["watched"], [frame["step"] for frame in one["frames"]]) for one in answers] == [
        ("a", False, [1, 2, 3]),
        ("b", False, [1, 3]),
    ]
    assert answers[0]["frames"][0]["values"] == pytest.approx(tokens.arrays["advantages"].tolist(), rel=1e-2)
    assert answers[1]["frames"][0]["tokens"] == ["response", " 1"] and answers[1]["frames"][0]["values"] == [None, None]


def test_where_no_prompt_came_twice_each_step_shows_its_best_answer(tmp_path: Path) -> None:
    steps = [[rollout(0, score=0.0, prompt=f"low {step}"), rollout(1, score=1.0, prompt=f"high {step}")] for step in (1, 2)]
    (answer,) = replay_of(record(tmp_path / "run", [0.0, 1.0], rollouts=steps))["answers"]
    assert answer["prompt"] == "" and [frame["prompt"] for frame in answer["frames"]] == ["high 1", "high 2"]
    assert [frame["tokens"] for frame in answer["frames"]] == [["response", " 1"], ["response", " 1"]]


def watching(answers: list[tuple[int, WatchRecord]]) -> Any:
    """A reader of these answers to watched prompts."""
    steps = sorted({step for step, _ in answers})
    return SimpleNamespace(
        watched=lambda *, ends: [answer for answer in answers if answer[0] in (steps[0], steps[-1])],
        watched_steps=lambda: steps,
        watched_at=lambda at, of: [answer for answer in answers if answer[0] in at and answer[1].sample in of],
    )


@pytest.mark.parametrize(("end", "first"), [(0.9, "both rise"), (-0.5, "gold falls")])
def test_the_answer_that_is_shown_first_goes_as_the_run_goes(end: float, first: str) -> None:
    changes = {"gold rises less": (2.0, 0.4), "gold falls": (1.5, -0.2), "both rise": (2.0, 1.5)}
    rows = [
        (step, watched(step, sample=sample, prompt=name, score=score * (step == 9), gold=gold * (step == 9)))
        for step in (0, 9)
        for sample, (name, (score, gold)) in enumerate(changes.items())
    ]
    gold = {"gold/score": np.array([0.0] * 3 + [0.8] * 3 + [end] * 3), "gold/score_se": np.full(9, 0.01)}
    answers, _ = answers_of(watching(rows), made(9, metrics=gold))
    assert answers[0]["prompt"] == first


def test_long_answers_stay_small() -> None:
    draw = np.random.default_rng(0)

    words = [f" w{number}" for number in draw.integers(0, 5000, 20_000)]

    def long(step: int, sample: int) -> tuple[int, WatchRecord]:
        pieces = words[97 * step + 2000 * sample :][:512]
        arrays = {"kl": draw.standard_normal(512).astype(np.float32)}
        return step, watched(step, sample=sample, prompt=f"p{sample}", pieces=pieces, arrays=arrays)

    reader: Any = watching([long(step, sample) for step in range(1, 61) for sample in range(5)])
    answers, tokens = answers_of(reader, made(60))
    assert len(answers) == MOST_ANSWERS and tokens is not None
    assert all((one["frames"][0]["step"], one["frames"][-1]["step"]) == (1, 60) for one in answers)
    assert len(gzip.compress(json.dumps(answers).encode())) < 290_000
    without_tokens = watching([(step, watched(step, pieces=[], arrays={}, response="x" * 600_000)) for step in (1, 60)])
    assert len(json.dumps(answers_of(without_tokens, made(60))[0])) < 2_000


def test_one_scale_is_told_by_what_both_say_at_first() -> None:
    def rows(factor: float, away: float) -> list[Any]:
        return [rollout(at, score=float(at % 5), gold=factor * (at % 5) + away) for at in range(20)]

    assert on_one_scale(rows(0.5, 0.0))
    assert not on_one_scale(rows(0.1, 0.0)) and not on_one_scale(rows(1.0, 5.0))
    assert not on_one_scale(rows(0.5, 0.0)[:5]) and not on_one_scale([rollout(at) for at in range(20)])


@pytest.mark.parametrize(
    ("factor", "paid", "scaling", "expected"), [(0.5, 1.0, "none", True), (0.1, 1.0, "none", False), (0.5, 0.1, "scale", True)]
)
def test_a_run_that_goes_on_has_the_answer_of_its_replay(tmp_path: Path, factor: float, paid: float, scaling: str, expected: bool) -> None:
    """From its eighth response on; later ones, which a policy that fools its judge has written, no longer change it."""

    def answers(away: float) -> list[Any]:
        return [rollout(at, score=paid * (at % 5), parts={"length": float(at % 5)}, gold=factor * (at % 5) - away) for at in range(6)]

    settings = {**FIXED, "reward": {**FIXED["reward"], "scaling": scaling}}
    reader = record(tmp_path / "run", [0.0], rollouts=[answers(0)], **settings)
    followed = OneScale(reader)
    assert not followed.read(reader.rollout_steps())  # six are too few
    record(tmp_path / "run", [0.0] * 11, rollouts=[answers(0)] * 10 + [answers(50)])
    assert followed.read(reader.rollout_steps()) is replay_of(reader)["one_scale"] is expected


def test_a_long_run_is_thinned_and_keeps_its_moments() -> None:
    rows = shown_rows(np.arange(1, 1001), [500, 777], most=100)
    assert len(rows) <= 100 and {0, 499, 776, 999} <= set(rows.tolist())
    assert shown_rows(np.arange(1, 51), [7]).tolist() == list(range(50))


def test_moments_take_at_most_half_of_a_replay() -> None:
    assert [timing(*case)["seconds"] for case in ((4, 0), (60, 2), (10, 8), (60, 8), (240, 8))] == [20, 36, 48, 54, 120]


def test_numbers_of_a_damaged_answer_colour_no_token(tmp_path: Path) -> None:
    damaged = watched(1, pieces=[" a", " b."])  # which has three numbers
    reader = record(tmp_path / "run", [0.0, 1.0], watched=[[damaged], [replace(damaged, score=2.0)]], **FIXED)
    shown = replay_of(reader)
    assert (shown["tokens"], [frame["values"] for frame in shown["answers"][0]["frames"]]) == (None, [[None, None]] * 2)


def test_kl_counts_as_passed_when_it_stays_above() -> None:
    kl = np.full(40, 10.0)
    kl[5], kl[20:] = 16.0, 16.0
    run = made(metrics={"objective/kl": kl})
    (moment,) = moments_of(run, [])
    assert (moment["step"], moment["kind"]) == (22, "kl") and "16.0 nats for each answer, more than 15" in moment["sentence"]
    ppo = {"kl_controller": "adaptive", "kl_target": 6.0}
    adaptive = replace(run, config=RunConfig.model_validate({"ppo": ppo}), origin=Origin())
    assert "its target of 6 nats" in moments_of(adaptive, [])[0]["sentence"] and kinds(adaptive)[0][0] == 2


def test_a_phrase_has_a_first_sign_and_a_takeover_whatever_it_is_called_between() -> None:
    def phrase(text: str, after: int, z: float) -> Rising:
        return Rising(text, tuple(text.split()), "ends", 1, 64, after, 64, after / 64, (after - 1) / 64, z)

    rising = {
        1: None,
        2: phrase("piece", 4, 2.0),
        3: phrase("piece", 20, 5.0),
        4: phrase("a piece", 24, 6.0),
        5: phrase("a piece", 40, 9.0),
    }
    moments = moments_of(made(rising=rising | {6: phrase("a piece", 60, 15.0)}), [])
    assert [(moment["step"], moment["sentence"]) for moment in moments] == [
        (3, "“piece” spreads: it ends 20 of 64 answers, 1 at the start."),
        (5, "“a piece” now ends 40 of 64 answers, 1 at the start."),
    ]


def test_changed_settings_are_moments_and_the_least_telling_go_first() -> None:
    changes = [SettingChange(step, "ppo.kl_coef", 0.1, 0.2) for step in range(2, 20)]
    kl = np.where(np.arange(40) > 30, 20.0, 1.0)
    run = made(changes=changes, metrics={"objective/kl": kl})
    assert len(kinds(run)) == MOST_MOMENTS and kinds(run)[-1] == (33, "kl")
    assert moments_of(run, [])[0]["sentence"] == "Settings changed: KL coefficient 0.1 → 0.2."


def test_somebody_who_watches_always_has_a_sentence_to_read() -> None:
    run = made(metrics={"objective/scores": np.arange(40) / 10, "objective/kl": np.full(40, -1e-7)})
    matters = {"step": 10, "kind": "phrase", "sentence": "So it is."}
    assert [tuple(moment.values()) for moment in told(run, [matters], "It worked.")] == [
        (1, "start", "It begins: score 0.00, KL 0.0."),
        (10, "phrase", "So it is."),
        (20, "stretch", "Since step 10: score 0.90 → 1.90, KL 0.0 → 0.0."),
        (30, "stretch", "Since step 20: score 1.90 → 2.90, KL 0.0 → 0.0."),
        (40, "end", "It worked."),
    ]


def test_a_caption_says_the_numbers_of_the_lines_at_its_steps(tmp_path: Path) -> None:
    """The doctor's rules look at means of three steps: here of steps 3 to 5, whose best is the fourth."""
    shown = replay_of(stored("beta-0-21", tmp_path / "run"))
    at = {moment["kind"]: moment for moment in shown["moments"]}

    def of(name: str, before: int, now: int) -> str:
        line = dict(zip(shown["steps"], shown["series"][name], strict=True))
        return f"{line[before]:.2f} → {line[now]:.2f}".replace("-", "−")

    turns, risen = at["gold_turns"], at["score"]
    numbers = of("gold", 4, turns["step"]), of("score", 4, turns["step"])
    fooled = "The judge is fooled: gold turns at step 4, certain at {} ({}), and the score still rises ({}).".format(
        turns["step"], *numbers
    )
    assert (turns["name"], turns["sentence"]) == ("The judge is fooled from here", fooled)
    assert risen["sentence"].endswith(f": {of('score', 1, risen['step'])}.")
    assert at["end"]["sentence"].endswith("gold 0.08 → −0.44. The numbers after the arrows are means of steps 28 to 30.")


def test_a_run_without_moments_has_none(tmp_path: Path) -> None:
    run = RunCache(record(tmp_path / "run", [0.0, 0.1, 0.0])).read()
    assert isinstance(run, RunData) and moments_of(run, []) == []


def test_where_the_policy_is_paid_a_shaped_score_the_replay_shows_what_the_curve_is_made_of(tmp_path: Path) -> None:
    def row(sample: int, prompt: str) -> Any:
        # scaled to about 1, as gold is; the curve is at about 300
        return rollout(sample, score=0.1 * sample, gold=0.1 * sample, prompt=prompt, parts={"model": 290.0 + sample, "length": 10.0})

    steps = [[row(sample, f"p{sample}") for sample in range(12)] for _ in (1, 2)]
    settings = {**FIXED, "reward": {**FIXED["reward"], "scaling": "normalise"}}
    shown = replay_of(record(tmp_path / "run", [305.0, 305.0], rollouts=steps, **settings))
    assert not shown["one_scale"]
    assert [answer["frames"][0]["score"] for answer in shown["answers"]] == [300.0, 301.0, 302.0, 303.0]


@pytest.mark.parametrize("longest", [400, 9000])
def test_answers_are_cut_only_where_all_together_are_too_long_and_then_the_long_ones(longest: int) -> None:
    def answer(step: int, sample: int) -> tuple[int, WatchRecord]:
        pieces = ["a"] * (40 if sample else longest)
        return step, watched(step, sample=sample, prompt=f"p{sample}", pieces=pieces, arrays={"kl": np.ones(len(pieces), np.float32)})

    reader: Any = watching([answer(step, sample) for step in range(64) for sample in range(4)])
    frames = [frame for one in answers_of(reader, made(64))[0] for frame in one["frames"]]
    shown = {len(frame["tokens"]) + frame["left_out"]: len(frame["tokens"]) for frame in frames}
    assert shown[40] == 40 and sum(len(frame["tokens"]) for frame in frames) <= MOST_TOKENS
    assert (shown[longest] == longest) == (longest == 400)
    assert all(frame["stopped"] is not bool(frame["left_out"]) for frame in frames)


def test_words_of_a_text_whose_tokens_nobody_knows_have_no_end_token(tmp_path: Path) -> None:
    words = replace(token_record(2, pieces=["real", " words"]), response_ids=np.full(2, -1, np.int32))
    steps = [[rollout(0, prompt="a", tokens=tokens, stopped=True)] for tokens in (words, token_record(2))]
    (answer,) = replay_of(record(tmp_path / "run", [0.0, 1.0], rollouts=steps))["answers"]
    assert [frame["stopped"] for frame in answer["frames"]] == [None, True]


def test_a_phrase_that_takes_over_has_a_moment_also_after_a_longer_one_that_spreads() -> None:
    def phrase(text: str, after: int, z: float) -> Rising:
        return Rising(text, tuple(text.split()), "ends", 0, 64, after, 64, after / 64, after / 64, z)

    run = made(rising={10: phrase("a real masterpiece", 15, 4.2), 40: phrase("masterpiece", 60, 15.0)})
    assert [(moment["step"], moment["sentence"][:20]) for moment in moments_of(run, [])] == [
        (10, "“a real masterpiece”"),
        (40, "“masterpiece” now en"),
    ]


def test_a_share_of_nothing_is_not_told() -> None:
    rising = Rising("the end", ("the", "end"), "ends", 0, 0, 16, 16, 1.0, 1.0, 9.0)
    assert moments_of(made(rising={3: rising}), [])[0]["sentence"] == "“the end” now ends 16 of 16 answers."


def test_a_kl_that_is_far_too_high_in_the_last_step_alone_is_a_moment() -> None:
    kl = np.full(40, 10.0)
    kl[-1] = 400.0
    run = made(metrics={"objective/kl": kl, "tokens/response_length": np.full(40, 20.0)})
    (moment,) = moments_of(run, diagnosis(run).findings)
    assert (moment["step"], moment["kind"]) == (40, "alarm") and "KL 400 nats" in moment["sentence"]


@pytest.mark.parametrize(("last", "rises"), [(2.3, True), (1.98, False)])
def test_gold_turns_says_that_the_score_rises_only_where_it_does(last: float, rises: bool) -> None:
    gold = np.concatenate([np.linspace(0, 2, 20), np.linspace(2, 0, 20)])
    score = np.concatenate([np.linspace(0, 2, 15), np.full(8, 2.0), np.full(17, last)])
    errors = np.full(40, 0.05)
    metrics = {"gold/score": gold, "gold/score_se": errors, "objective/scores": score, "objective/scores_se": errors}
    run = made(metrics=metrics)
    (moment,) = (moment for moment in moments_of(run, diagnosis(run).findings) if moment["kind"] == "gold_turns")
    assert ("still rises" in moment["sentence"]) == rises and f"(2.00 → {last:.2f})" in moment["sentence"]


def test_a_secret_is_hidden_in_all_tokens_over_which_it_goes(tmp_path: Path) -> None:
    secret = ["ask", "-it: ", "sk-", "abcdefgh", "ijk", " https://an", "na:pa", "ss@host", " end"]
    arrays = {"kl": np.ones(len(secret), np.float32)}
    answers = [[watched(step, pieces=secret, response="".join(secret), arrays=arrays)] for step in (1, 2)]
    (answer,) = replay_of(record(tmp_path / "run", [0.0, 1.0], watched=answers))["answers"]
    assert answer["frames"][0]["tokens"] == ["ask", "-it: ", "sk-", "…", "…", " https://…", "…", "…host", " end"]
