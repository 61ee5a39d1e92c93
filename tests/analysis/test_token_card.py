"""The sums of a token's card: what they say is what the engine computes, and what is printed adds up."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.analysis import token_card
from rlhf_studio.config import PPOConfig
from rlhf_studio.lessons.run import LessonRun, lesson_run
from rlhf_studio.ppo.advantages import gae
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.records import TokenRecord
from rlhf_studio.ui.live import responses

SCORE = 1.0
BY_HAND = {
    "kl": [0.2, -0.1, 0.3],
    "rewards": [-0.02, 0.01, 0.97],
    "values": [0.5, 0.4, 0.3],
    "deltas": [-0.16, -0.12, 0.67],
    "advantages": [-0.078325, 0.1815, 0.67],
    "returns": [0.421675, 0.5815, 0.97],
    "whitened_advantages": [-1.1, 0.0, 1.3],
    "logprobs": [math.log(0.5), math.log(0.2), math.log(0.1)],
    "new_logprobs": [math.log(0.4), math.log(0.205), math.log(0.3)],
}
"""Three tokens with γ = 0.9, λ = 0.5, β = 0.1 and a score of 1 at the end."""


def record(gamma: float = 0.9, lam: float = 0.5, kl_coef: float = 0.1, **arrays: Any) -> TokenRecord:
    """The three tokens, with other numbers for some quantities; None takes one away."""
    values_by_name = {name: values for name, values in (BY_HAND | arrays).items() if values is not None}
    none = np.zeros((3, 0), np.float32)
    numbers = {name: np.array(values, np.float32) for name, values in values_by_name.items()}
    ids = np.arange(3, dtype=np.int32)
    return TokenRecord(ids, ids, ["a"] * 3, ["b"] * 3, numbers, none, none, none, none, {}, gamma, lam, kl_coef)


def sums(tokens: TokenRecord, score: float = SCORE, **ppo: Any) -> Any:
    return token_card.card(tokens, score, PPOConfig(**ppo))["sums"]


def test_three_tokens_by_hand() -> None:
    card = token_card.card(record(), SCORE, PPOConfig())
    one_each = {name: card["sums"][name] for name in ("advantages", "deltas", "returns")}
    assert one_each == {"advantages": [0, "444"], "deltas": [0, "444"], "returns": [0, "444"]}
    assert card["sums"]["rewards"] == [0, "44"] and card["sums"]["rewards_last"] == [2, "4"] and len(card["sums"]) == 5
    assert card["factors"] == {"gamma": "0.9", "gamma_lambda": "0.9 × 0.5", "minus_beta": "−0.1"}
    assert card["edges"] == {"-": 0.8, "+": 1.2} and card["signs"] == "- +"
    assert card["moves"] == "-0+"  # from 0.5 to 0.4, by half a percent, from 0.1 to 0.3
    assert card["whitened"] is True and card["compared"] == ""


@pytest.mark.parametrize(
    "total, terms, decimals",
    [
        (3.0, (1.0, 2.0), "4"),
        (5.0, (1.0, 2.0), "~"),
        (0.0003, (0.00014, 0.00014), "5"),  # 0.0001 + 0.0001 would be 0.0002
        (0.0001, (0.000034, 0.000034), "5"),
        (0.0000498, (0.0000554, -0.0000056), "6"),  # 0.00006 - 0.00001 is as near to 0.0001 as to 0
        (math.nan, (1.0, 2.0), " "),
        (1e38, (1e38, 1e38), "~"),
    ],
)
def test_as_many_decimals_as_the_printed_sum_needs(total: float, terms: tuple[float, float], decimals: str) -> None:
    sums_of_card = sums(record(returns=[total] * 3, advantages=[terms[0]] * 3, values=[terms[1]] * 3))
    mark = sums_of_card["returns"][1][0] if "returns" in sums_of_card else " "
    assert mark == decimals


def test_what_is_missing_leaves_a_token_without_sums() -> None:
    assert sums(record(deltas=[0.1, math.nan, 0.67]))["deltas"] == [0, "~ 4"]
    waiting = token_card.card(record(advantages=None, deltas=None), SCORE, PPOConfig())
    assert waiting["sums"] == {} and waiting["missing"] == "waiting"
    never = token_card.card(replace(record(advantages=None, deltas=None), gamma=math.nan), SCORE, PPOConfig())
    assert never["missing"] == ""
    assert token_card.card(record(deltas=[math.nan] * 3), SCORE, PPOConfig())["missing"] == "missing"
    assert sums(record(gamma=math.nan)) == {}


def test_the_reward_is_explained_only_where_the_settings_explain_it() -> None:
    assert sums(record(kl_coef=0.2))["rewards_given"] == [0, "444"]
    assert sums(record(), score=0.5)["rewards_given"] == [2, "4"]
    assert sums(record(kl=None))["rewards_given"] == [0, "444"]
    in_loss = sums(record(rewards=[0.0, 0.0, 1.0]), kl_placement="loss", kl_estimator="k3")
    assert (in_loss["rewards_in_loss"], in_loss["rewards_in_loss_last"]) == ([0, "44"], [2, "4"])
    assert sums(record(), kl_placement="loss", kl_estimator="k3")["rewards_given"] == [0, "444"]


def test_without_a_critic_only_the_reward_is_a_sum() -> None:
    alone = record(math.nan, math.nan, values=None, deltas=None, returns=None, whitened_advantages=None)
    card = token_card.card(alone, SCORE, PPOConfig(advantage="rloo", responses_per_prompt=4))
    assert card["compared"] == "rloo" and set(card["sums"]) == {"rewards", "rewards_last"}
    assert card["signs"] == "-++" and card["whitened"] is False and set(card["factors"]) == {"minus_beta"}


@pytest.fixture(scope="module")
def run() -> LessonRun:
    return lesson_run()


def recorded(run: LessonRun, every: int) -> list[tuple[Any, bytes]]:
    """One response of so many of the lesson run with the engine's numbers, and what the page is told of each."""
    ppo = run.reader.config().ppo
    samples = [(step, row.sample) for step in run.reader.rollout_steps() for row in run.reader.rollouts(step)]
    records = [(step, run.reader.rollout(step, sample)) for step, sample in samples[::every]]
    return [(record, responses.tokens_payload(step, record, ppo)) for step, record in records if record.tokens is not None]


def value_of(formula: token_card.Sum, tokens: TokenRecord, score: float, position: int) -> float:
    """A sum of the table, computed from its terms and this run's own factors."""
    factor = {"gamma": tokens.gamma, "gamma_lambda": tokens.gamma * tokens.lam, "minus_beta": -tokens.kl_coef, "": 1.0}
    total = 0.0
    for term in formula.terms:
        values = [score] * len(tokens.response_ids) if term.of == "score" else [float(x) for x in tokens.arrays[term.of]]
        value = ([*values, term.beyond])[position + term.next] if term.next else values[position]
        total += (-1 if term.minus else 1) * factor[term.factor] * value
    return total


def test_the_sums_are_what_the_engine_computes(run: LessonRun) -> None:
    """The table of sums against ``ppo.advantages.gae`` and ``ppo.rewards.shape_rewards``, from the recorded KL, values and score."""
    recorded_responses = recorded(run, 24)
    assert len(recorded_responses) > 4
    for response, _ in recorded_responses:
        tokens, count = response.tokens, response.length
        kl, values = (torch.tensor(tokens.arrays[name], dtype=torch.float64).unsqueeze(0) for name in ("kl", "values"))
        mask = torch.ones(1, count, dtype=torch.bool)
        rewards = shape_rewards(kl, torch.tensor([response.score], dtype=torch.float64), mask, tokens.kl_coef)
        advantages, returns, deltas = gae(rewards, values, mask, tokens.gamma, tokens.lam)
        engine = {"rewards": rewards, "rewards_last": rewards, "advantages": advantages, "returns": returns, "deltas": deltas}
        for name, computed in engine.items():
            positions = {"rewards": range(count - 1), "rewards_last": [count - 1]}.get(name, range(count))
            for position in positions:
                value = value_of(token_card.SUMS[name], tokens, response.score, position)
                assert value == pytest.approx(float(computed[0, position]), abs=2e-5), (name, position)


def test_what_the_page_prints_of_a_recorded_run_adds_up(run: LessonRun) -> None:
    """From the bytes that the page gets, as it prints them: added with pencil and paper, in whole numbers of 1e-12."""
    checked = 0
    for _, body in recorded(run, 5):
        payload = json.loads(body)
        arrays, card = payload["tokens"]["arrays"], payload["tokens"]["card"]
        count = len(payload["tokens"]["response_ids"])
        marks = {name: (" " * first + digits).ljust(count) for name, (first, digits) in card["sums"].items()}
        for position in range(count):
            digits_here = {name: digits[position] for name, digits in marks.items() if digits[position] != " "}
            assert len(digits_here) == 4, "each token of PPO with a critic has four sums"
            for name, digits in digits_here.items():
                formula = token_card.SUMS[name]
                if digits == "~":
                    continue
                total = sum(printed(term, payload, position, int(digits)) for term in formula.terms)
                assert abs(total - in_parts(arrays[formula.name][position], 4)) < 0.5 * 10**8, (name, position)
                checked += 1
    assert checked > 2_000


def in_parts(value: float, digits: int) -> int:
    """A number rounded to so many decimals, half away from 0, in units of 1e-12."""
    before_point, _, part = f"{abs(value):.30f}".partition(".")
    up = part[digits] >= "5"
    size = (int(before_point + part[:digits]) + up) * 10 ** (12 - digits)
    return -size if value < 0 else size


def printed(term: token_card.SumTerm, payload: Any, position: int, digits: int) -> int:
    values = [payload["score"]] * (position + 1) if term.of == "score" else payload["tokens"]["arrays"][term.of]
    at = position + term.next
    value = in_parts(values[at] if at < len(values) else term.beyond, digits)
    if term.factor:
        for text in payload["tokens"]["card"]["factors"][term.factor].replace("−", "-").split(" × "):
            before_point, _, part = text.partition(".")
            value = value * int(before_point + part) // 10 ** len(part)
    return -value if term.minus else value


def test_the_letters_are_those_of_the_lessons() -> None:
    pages = resources.files("rlhf_studio.lessons.pages")
    text = {name: pages.joinpath(f"{name}.en.md").read_text(encoding="utf-8") for name in ("gae", "rewards")}
    for lesson, names in (("gae", ("advantages", "deltas")), ("rewards", ("rewards_last",))):
        for formula in (token_card.SUMS[name] for name in names):
            assert f"{formula.left} = {formula.right}" in text[lesson]


def test_letters_as_plain_text() -> None:
    letters = {name: (formula["left"], formula["right"]) for name, formula in token_card.described()["sums"].items()}
    assert letters["advantages"] == ("Aₜ", "δₜ + γλ Aₜ₊₁")
    assert letters["deltas"] == ("δₜ", "rₜ + γ Vₜ₊₁ − Vₜ")
    assert letters["rewards_last"] == ("rₜ", "−β klₜ + score") and letters["rewards"][1] == "−β klₜ"
    assert letters["rewards_in_loss"][1] == "0, the KL is charged in the loss" and letters["rewards_given"][1] == "reward of this token"
    assert token_card.described()["sums"]["deltas"]["terms"][1:] == [
        {"of": "values", "factor": "gamma", "next": True, "beyond": 0.0},
        {"of": "values", "minus": True},
    ]
    with pytest.raises(ValueError, match="no plain text"):
        token_card.letters(r"\frac{1}{2}")


def test_probabilities_and_what_is_derived() -> None:
    assert token_card.chances(np.log([0.5, 0.12344, 0.00004])).tolist() == [0.5, 0.1234, 0.0]
    assert np.isnan(token_card.chances(np.array([np.nan]))[0]) and token_card.chances(np.array([-np.inf])).tolist() == [0.0]
    tokens = record()
    assert token_card.log_ratio(tokens.arrays) == pytest.approx(np.log([0.8, 1.025, 3.0]), abs=1e-6)
    assert token_card.log_ratio({}) is None and token_card.loss(tokens.arrays) is None
    assert token_card.loss({"logprobs": np.array([-2.0])}) == pytest.approx([2.0])


@pytest.mark.parametrize("coef, text", [(0.00001, "−0.00001"), (0.1037251, "−0.103725"), (2.0, "−2"), (123456.7, "−123457")])
def test_a_factor_is_printed_without_an_exponent(coef: float, text: str) -> None:
    value, printed_text = token_card.factors(1.0, 0.95, coef)["minus_beta"]
    assert printed_text == text and float(value) == float(text.replace("−", "-"))
    assert token_card.factors(1.0, 0.95, coef)["gamma_lambda"][1] == "0.95"


def test_no_script_holds_a_formula() -> None:
    """Exponentials and logarithms in the page's scripts would be formulas. What may have one says where to draw, or what to leave out."""
    allowed = {
        "charts/axes.js": "the distance of an axis' marks",
        "live/learned.js": "how many times as frequent a phrase must be",
        "charts/plot.js": "where a point lies on a logarithmic axis",
    }
    assets = Path(str(resources.files("rlhf_studio.ui").joinpath("assets")))
    with_formulas = {
        path.relative_to(assets).as_posix()
        for path in assets.rglob("*.js")
        if re.search(r"Math\.(exp|log|pow)", path.read_text(encoding="utf-8"))
    }
    assert with_formulas == set(allowed)
