"""What a made run comes to, since when, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rlhf_studio.analysis.doctor import Doctor, diagnose
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.run_data import RunData, reward_changes
from rlhf_studio.analysis.records import Diagnosis, Verdict
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Origin, StoredEvent
from rlhf_studio.runs.writer import RunWriter
from tests.analysis.doctor.made_runs import Made, Values, after, sentence, with_texts


def verdict(made: Made, folder: Path, until: int | None = None) -> Verdict:
    return diagnosis_of(made, folder, until).verdict


def diagnosis_of(made: Made, folder: Path, until: int | None = None) -> Diagnosis:
    return diagnosis(made.read(folder / "run").up_to(until))


FLAT: Values = {"objective/scores": lambda step: 0.1 + 0.02 * (-1) ** step}
DESTROYED: dict[str, Any] = {  # as a learning rate of 0.9 leaves the world
    "objective/scores": after(2, 0.24, 0.02),
    "objective/scores_std": after(2, 0.12, 1.0),
    "gold/score": after(2, -1.0, -0.06),
    "gold/score_se": after(2, 0.0, 0.07),
    "objective/kl": after(2, 395.0, 0.0),
    "policy/entropy_avg": after(2, 0.0, 0.15),
    "tokens/cut_off": after(2, 1.0, 0.02),
    "tokens/response_length": after(2, 32.0, 23.7),
}
GAMED: dict[str, Any] = {  # gold turns at step 6 and the score goes on
    "gold/score": lambda step: 0.1 * step if step <= 6 else 0.6 - 0.15 * (step - 6),
    "gold/score_se": 0.04,
}


def test_a_run_that_goes_on_improves_and_one_that_ended_has_improved(tmp_path: Path) -> None:
    ended = verdict(Made(gold=True), tmp_path / "a")
    assert (ended.kind, ended.since) == ("improved", 5)
    assert ended.sentence == "Improved: score 0.10 → 1.26, gold 0.14 → 0.68, KL 3.6 nats."  # 1.3 - 1.2 · 0.8^16 and so on, by hand
    assert verdict(Made(gold=True), tmp_path / "b", until=15).kind == "improving"
    assert verdict(Made(gold=True), tmp_path / "c", until=4).kind == "too early"


def test_the_tiles_arrows_follow_the_rule_of_the_verdict(tmp_path: Path) -> None:
    """Newest steps that fall by chance turn no arrow: what counts is the start, as in the sentence."""
    metrics: dict[str, Any] = {
        "objective/scores": lambda step: 1.5 if 5 <= step < 14 else 1.4 if step >= 14 else 0.1 * step,  # a little lower in the end
        "gold/score": lambda step: 0.2 + 0.01 * (-1) ** step,
        "gold/score_se": 0.05,
        "policy/entropy_avg": lambda step: 2.0 - 0.1 * step + 0.005 * (-1) ** step,
    }
    result = diagnose(Made(metrics=metrics, gold=True).write(tmp_path / "run"))
    assert result.verdict.kind == "improved"
    directions = {name: result.directions[name] for name in ("objective/scores", "gold/score", "policy/entropy_avg")}
    assert directions == {"objective/scores": 1, "gold/score": 0, "policy/entropy_avg": -1}
    turned: Values = {**GAMED, "gold/score": lambda step: min(0.1 * step, 1.2 - 0.1 * step)}
    gamed = diagnose(Made(metrics=turned, gold=True).write(tmp_path / "b"), 12)
    assert gamed.verdict.kind == "exploiting the reward"  # gold is back where it began, and fell from 0.6
    assert (gamed.directions["objective/scores"], gamed.directions["gold/score"]) == (1, -1)


def test_a_destroyed_policy_has_collapsed_whatever_its_score_says(tmp_path: Path) -> None:
    made = Made(metrics=DESTROYED, responses=with_texts(lambda step, row: sentence(row) if step < 2 else "charming " * 32))
    result = verdict(made, tmp_path)
    assert (result.kind, result.since) == ("collapsed", 2)
    assert result.sentence.startswith(
        "Collapsed: the policy has no choice left at any token, no response ends by itself and all prompts get"
    )


def test_a_run_that_died_of_its_numbers_has_collapsed(tmp_path: Path) -> None:
    made = Made(metrics=FLAT, state="failed", cause="the gradient norm is not finite (nan). Begin again.")
    assert verdict(made, tmp_path / "a").kind == "collapsed"
    other = verdict(Made(state="failed", cause="the disk is full. Make room."), tmp_path / "b")
    assert other.kind == "improved" and other.notes[-1] == "The run failed: the disk is full."
    none = verdict(Made(steps=0, settings={"ppo": {"steps": 9}}, state="failed", cause="the disk is full. Make room."), tmp_path / "c")
    assert none.kind == "too early" and none.notes == ["The run failed: the disk is full."]


def test_gold_that_falls_while_the_score_rises_is_exploitation(tmp_path: Path) -> None:
    result = verdict(Made(metrics=GAMED), tmp_path)
    assert (result.kind, result.since) == ("exploiting the reward", 11)
    assert "Gold was 0.52 around step 7 and is −0.75 now" in result.reason  # means of 5 to 7 and of 14 to 16


def test_gold_that_falls_with_the_score_is_not(tmp_path: Path) -> None:
    result = verdict(Made(metrics={**GAMED, "objective/scores": GAMED["gold/score"]}), tmp_path)
    assert result.kind != "exploiting the reward"


def test_a_verdict_that_no_longer_holds_goes(tmp_path: Path) -> None:
    """Gold dips in the middle and comes back."""
    metrics = {"gold/score": [0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.0, 0.0, 0.0, 0.5, 0.55, 0.6, 0.6, 0.6, 0.6, 0.6], "gold/score_se": 0.03}
    made = Made(metrics=metrics)
    assert verdict(made, tmp_path / "a", until=9).kind == "exploiting the reward"
    result = verdict(made, tmp_path / "b")
    assert (result.kind, result.since) == ("improved", 11)  # the mean of 9 to 11 is 0.35, within 5 standard errors of the best, 0.47


def test_nothing_learned_is_said_at_the_end(tmp_path: Path) -> None:
    made = Made(metrics={**FLAT, "lr": 1e-9})
    assert verdict(made, tmp_path / "a").kind == "nothing learned"
    assert verdict(made, tmp_path / "b", until=12).kind == "cannot tell yet"


# Mean scores of 20 steps as RLOO gave them with a small chat model, 4 prompts with 4 responses each: nearly every one is higher.
SHORT_RUN = [0.03, 0.05, 0.04, 0.09, 0.11, 0.15, 0.14, 0.20, 0.24, 0.29, 0.28, 0.35, 0.39, 0.44, 0.43, 0.50, 0.55, 0.59, 0.63, 0.68]


def short_run(steps: int = 20, **changes: Any) -> Made:
    settings = {"ppo": {"steps": 20, "batch_size": 16, "mini_batch_size": 16, "responses_per_prompt": 4, "advantage": "rloo"}}
    metrics = {"objective/scores": SHORT_RUN[:steps], "objective/scores_std": 0.4, "objective/scores_se": 0.18}
    return Made(steps=steps, metrics=metrics, settings=settings, **changes)


def test_a_short_run_that_rises_at_nearly_every_step_has_learned(tmp_path: Path) -> None:
    """The mean of the first 8 steps against the last 2 is 3.9 standard errors, 0.554 / (0.18 √(1/8 + 1/2)). The trend knows all 20."""
    assert verdict(short_run(), tmp_path / "a").kind == "improved"
    assert "6 steps, which are too few to compare the first ones with the last" in verdict(short_run(6), tmp_path / "six").reason
    early = verdict(short_run(), tmp_path / "b", until=12)
    assert early.kind == "cannot tell yet"  # 0.35 − 0.10 in 12 steps: within the error
    assert "rising" in {verdict(short_run(), tmp_path / "c" / str(until), until=until).kind for until in range(13, 19)}


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_run_that_was_stopped_is_not_over(state: Any, tmp_path: Path) -> None:
    """It can go on, so that nothing is said of it that the same run would not have been told while it went on."""
    made = Made(steps=10, state=state, cause="the disk is full" if state == "failed" else "")

    def early(metrics: Values) -> Verdict:
        reader = replace(made, metrics=metrics).write(tmp_path / str(len(list(tmp_path.iterdir()))))
        with RunWriter(reader.run_dir) as writer:
            writer.plan(60)
            writer.set_state(state)
        return diagnose(reader).verdict

    assert early({}).kind == "improving" and early(FLAT).kind == "cannot tell yet"
    assert "after step 10 of 60" in early(FLAT).sentence


def test_steps_that_were_left_out_are_counted(tmp_path: Path) -> None:
    """Rewards that are not finite, with ``non_finite: skip``: 6 of 8 updates are left out, 64 responses each."""
    event = EventRecord("warning", "skip", "This update was left out: rewards is not finite in episode 3, prompt 'a'.")
    lost: Values = {"objective/scores": lambda step: math.nan if step > 2 else 0.1, "optim/steps": lambda step: 0.0 if step > 2 else 8.0}
    result = verdict(Made(steps=8, metrics=lost, events=dict.fromkeys(range(3, 9), event)), tmp_path / "a")
    assert result.kind == "not known" and "6 of 8 steps, with 384 responses" in result.sentence
    some = verdict(Made(steps=16, events={4: event, 9: event}), tmp_path / "b")
    assert some.kind == "improved" and any("2 of 16 steps, with 128 responses" in note for note in some.notes)


LEFT_OUT = [
    ("3 minibatches were left out: the mean ratio 58.2 exceeds the threshold 10, so the minibatch was skipped.", "mean ratio"),
    ("1 minibatch was left out: the gradient norm is not finite (nan).", "not finite"),
    ("1 minibatch was left out: the entropy is not finite (nan) in episode 1, prompt 'the mean ratio'.", "not finite"),
    ("This update was left out: the component 'a' gave no score for a text.", "a reward was missing"),
]


def test_what_was_left_out_has_the_cause_that_was_recorded(tmp_path: Path) -> None:
    for text, cause in LEFT_OUT:
        noted = verdict(Made(events={4: EventRecord("warning", "skip", text)}), tmp_path)
        (note,) = [note for note in noted.notes if note.startswith("Left out")]
        assert [name for name in ("mean ratio", "not finite", "a reward was missing") if name in note] == [cause], text


def test_a_score_that_fell_is_told(tmp_path: Path) -> None:
    result = verdict(Made(metrics={"objective/scores": after(4, -0.9, 0.1)}), tmp_path)
    assert result.kind == "nothing learned" and result.sentence == "The score fell. Score 0.10 → −0.90."


def test_without_gold_the_verdict_says_that_nobody_else_judges(tmp_path: Path) -> None:
    result = verdict(Made(), tmp_path)
    assert result.kind == "improved" and result.notes[0] == "No gold score: nothing independent of the reward judges this run."


def test_without_gold_two_signs_make_it_exploitation(tmp_path: Path) -> None:
    repeats = with_texts(lambda step, row: sentence(step * 20 + row) if step < 6 else "good good good " + sentence(step * 20 + row, 3))
    finding = verdict(Made(responses=repeats), tmp_path / "a")
    assert finding.kind == "improved" and "Responses repeat themselves." in finding.notes
    two = verdict(Made(responses=repeats, metrics={"objective/kl": after(8, 40.0, 2.0)}), tmp_path / "b")
    assert (two.kind, two.since) == ("exploiting the reward", 10)
    assert two.reason.endswith("Signs of it: responses repeat themselves and the policy has left its reference far behind.")
    (note,) = two.notes  # they are said once
    assert note.startswith("“good good good” is taking over")


def test_the_phrase_stands_in_the_notes_of_a_good_run(tmp_path: Path) -> None:
    made = Made(gold=True, responses=with_texts(lambda step, row: sentence(step * 20 + row) + (". A masterpiece." if step > 6 else ".")))
    result = verdict(made, tmp_path)
    assert result.kind == "improved"
    assert result.notes[0] == "“A masterpiece” is taking over: it ends 30 of 30 responses; the judge may be fooled by it."


def test_where_the_score_did_not_rise_nobody_is_fooled(tmp_path: Path) -> None:
    made = Made(metrics=FLAT, responses=with_texts(lambda step, row: sentence(step * 20 + row) + (". A masterpiece." if step > 6 else ".")))
    result = diagnose(made.write(tmp_path / "run"))
    assert "“A masterpiece” is taking over: it ends 30 of 30 responses." in result.verdict.notes
    (finding,) = [finding for finding in result.findings if finding.check == "one-phrase"]
    assert finding.cause.startswith("The score did not rise with it") and list(finding.changes) == ["ppo.learning_rate"]


def test_a_check_does_not_call_damaged_what_the_verdict_calls_rising(tmp_path: Path) -> None:
    """The verdict says rising, not yet certain: so no check says that the score did not rise, nor would it start again."""
    phrase = with_texts(lambda step, row: sentence(step * 20 + row) + (". A masterpiece." if step > 6 else "."))
    doctor = Doctor(short_run(responses=phrase).write(tmp_path / "run"))
    rising = [result for result in (doctor.diagnose(until) for until in range(13, 19)) if result.verdict.kind == "rising"]
    assert rising
    for result in rising:
        (finding,) = [finding for finding in result.findings if finding.check == "one-phrase"]
        assert "did not rise" not in finding.cause and "not certain" in finding.cause and not finding.changes and finding.fork_step is None
    (unknown,) = [
        finding
        for finding in diagnose(Made(metrics={"objective/scores": math.nan}, responses=phrase).write(tmp_path / "none")).findings
        if finding.check == "one-phrase"
    ]
    assert "did not rise" not in unknown.cause and not unknown.changes  # no score is known


def test_gold_that_does_not_follow_is_noted(tmp_path: Path) -> None:
    result = verdict(Made(metrics={"gold/score": 0.1, "gold/score_se": 0.05}), tmp_path)
    assert result.notes[0] == "The gold score did not rise with it: the reward may be something else than what was meant."


def test_scores_that_are_missing_make_no_verdict_of_numbers(tmp_path: Path) -> None:
    result = verdict(Made(metrics={"objective/scores": math.nan, "objective/scores_std": math.nan}), tmp_path)
    assert (result.kind, result.sentence) == ("not known", "Not known: no score is recorded.") and "nan" not in result.reason


def test_a_score_that_is_missing_at_the_first_step_leaves_the_verdict_to_the_others(tmp_path: Path) -> None:
    rising: Values = {"objective/scores": lambda step: math.nan if step == 1 else 0.1 * step}
    result = verdict(Made(metrics=rising), tmp_path)
    assert result.sentence.startswith("Improved: score 0.20 → 1.60") and "15 steps with a score" in result.reason


def test_means_alone_are_judged_by_how_far_successive_steps_lie_apart(tmp_path: Path) -> None:
    """The noise of ±0.05 makes differences of 0.1, and these an error of 0.1 / √2 of each mean."""
    alone = {"objective/scores_std": math.nan}
    still: Values = {"objective/scores": lambda step: 1 + 0.05 * (-1) ** step, **alone}
    nothing = verdict(Made(steps=40, metrics=still), tmp_path / "a")
    assert nothing.kind == "nothing learned" and "successive steps" in nothing.reason
    rising: Values = {"objective/scores": lambda step: 0.1 * step + 0.05 * (-1) ** step, **alone}
    result = verdict(Made(steps=24, metrics=rising), tmp_path / "b")
    assert result.kind == "improved"
    assert "between the means of these two the score rose by 2.30." in result.reason  # 0.05 → 2.35, the mean of 23 and 24
    few = verdict(Made(steps=5, metrics={"objective/scores": [1.0, math.nan, 2.0, math.nan, 3.0], **alone}), tmp_path / "c")
    assert (few.kind, few.reason) == ("too early", "A verdict needs 5 steps with a score; there are 3.")


def test_scores_of_two_rewards_are_not_compared(tmp_path: Path) -> None:
    """A fork that makes the reward ten times as large at step 8: nothing is learned after it."""
    change = {"setting": "reward.components.0.weight", "old": 1.0, "new": 10.0}
    forked = EventRecord("info", "setting", "Changed after step 8.", {"changes": [change]})
    scores: Values = {"objective/scores": lambda step: (1.0 if step <= 8 else 10.0) + 0.01 * (-1) ** step}
    result = verdict(Made(steps=20, metrics=scores, events={8: forked}), tmp_path / "a")
    assert result.kind == "nothing learned" and result.sentence.endswith("Score 9.99 → 10.01.")
    assert "changed after step 8" in result.reason and "12 steps since then" in result.reason
    other = EventRecord("info", "setting", "Changed after step 8.", {"changes": [{**change, "setting": "ppo.steps"}]})
    assert verdict(Made(steps=20, metrics=scores, events={8: other}), tmp_path / "b").kind == "improved"
    assert verdict(Made(steps=20, metrics=scores, events={8: forked}), tmp_path / "c", until=8).kind == "cannot tell yet"


def test_only_changes_of_the_steps_as_they_are_now_count() -> None:
    """Step 3 was trained again after its event; the fork itself has told nothing yet."""

    class Reader:
        def origin(self) -> Origin:
            return Origin("parent", 6, {"reward.score_clip": 1.0, "ppo.steps": 9})

        def recorded_at(self, step: int) -> float | None:
            return {3: 50.0, 5: 20.0}.get(step)

    changes = {"changes": [{"setting": "reward.gold", "old": "", "new": "world"}, {"setting": "ppo.steps", "old": 1, "new": 9}]}
    events = [StoredEvent(step, 30.0, step, "info", "setting", "Changed.", changes) for step in (3, 5, 8)]
    assert reward_changes(cast(RunReader, Reader()), events) == [(6, "reward.score_clip"), (5, "reward.gold")]


@pytest.mark.parametrize("recorded", [True, False], ids=["errors recorded", "run of an earlier version"])
def test_responses_to_one_prompt_are_not_independent(recorded: bool) -> None:
    """16 responses to each of 4 prompts that earn nearly the same, and a policy that stays as it is: 12 draws."""
    config = RunConfig.model_validate({"ppo": {"steps": 30, "batch_size": 64, "mini_batch_size": 64, "responses_per_prompt": 16}})
    kinds = []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        scores = draw.normal(size=(30, 4, 1)) + 0.2 * draw.normal(size=(30, 4, 16))
        gold = draw.normal(size=(30, 4, 1)) + 0.2 * draw.normal(size=(30, 4, 16))
        rising = np.linspace(0, 3, 30)
        errors = {
            "objective/scores_se": scores.mean(axis=2).std(axis=1, ddof=1) / 2,
            "gold/score_se": gold.mean(axis=2).std(axis=1, ddof=1) / 2,
        }
        earlier = {"gold/score_se": gold.std(axis=(1, 2), ddof=1) / 8}
        metrics = {"objective/scores_std": scores.std(axis=(1, 2), ddof=1), **(errors if recorded else earlier)}
        run = RunData(config, "finished", "", "cpu", 30, np.arange(1, 31), metrics | {"objective/scores": scores.mean(axis=(1, 2))})
        kinds.append(diagnosis(run).verdict.kind)
        gamed = replace(run, metrics=metrics | {"objective/scores": rising, "gold/score": gold.mean(axis=(1, 2))})
        assert diagnosis(gamed).verdict.kind == "improved"  # gold is noise: it does not fall
    assert set(kinds) <= {"cannot be told", "rising"} and kinds.count("rising") <= 2  # 5 %, and what chance adds; 120 prompts are few


def test_the_verdict_of_each_step_is_the_one_that_was_given_then(tmp_path: Path) -> None:
    run = Made(metrics=GAMED).read(tmp_path / "run")
    kinds = [diagnosis(run.up_to(step)).verdict.kind for step in range(1, 16)]
    assert kinds == ["too early"] * 4 + ["improving"] * 6 + ["exploiting the reward"] * 5


def test_a_run_that_ended_after_a_few_steps_is_not_said_to_have_learned_nothing(tmp_path: Path) -> None:
    """Its score may well have risen: five steps of 64 responses do not exclude a rise by a quarter of their spread."""
    for steps, kind in ((4, "too early"), (5, "improved")):
        assert verdict(Made(steps=steps, gold=True), tmp_path / str(steps)).kind == kind
    assert verdict(Made(steps=4), tmp_path / "a").reason == "A verdict needs 5 steps; there are 4."
    unsure = verdict(Made(steps=5, metrics=FLAT), tmp_path / "b")
    assert unsure.kind == "cannot be told" and unsure.sentence.startswith("Cannot be told: the change is no larger than chance")
    assert verdict(Made(steps=4), tmp_path / "c").sentence == "Cannot be told: the run had too few steps."


LOST: dict[str, Any] = {  # gold falls far at step 6, with a KL of 30 nats
    "objective/scores": after(6, 0.0, 0.1),
    "gold/score": after(6, -0.9, 0.1),
    "gold/score_se": 0.06,
    "objective/kl": after(6, 30.0, 2.0),
}


def test_a_policy_that_has_collapsed_stays_so_until_it_is_back(tmp_path: Path) -> None:
    """Gold loses 0.3 of a spread of 0.48 in the end: less than a collapse asks, but the policy is not what it was."""
    half = {**LOST, "gold/score": lambda step: 0.1 if step < 6 else -0.9 if step < 10 else -0.1, "objective/kl": after(10, 2.0, 30.0)}
    result = verdict(Made(metrics=half), tmp_path / "a")
    assert (result.kind, result.since) == ("collapsed", 6)  # the mean of 4 to 6 has lost 0.33, the KL is above 15 since step 1
    assert result.sentence.startswith("Collapsed: the judge finds it worse than at the start.")
    back = {**half, "gold/score": lambda step: 0.1 if step < 6 else -0.9 if step < 10 else 0.3}
    assert verdict(Made(metrics=back), tmp_path / "b").kind != "collapsed"


def test_a_policy_that_writes_nothing_and_gained_nothing_has_collapsed(tmp_path: Path) -> None:
    silent = {**FLAT, "tokens/response_length": after(5, 1.2, 22.0)}
    result = verdict(Made(metrics=silent), tmp_path / "a")
    assert (result.kind, result.since) == ("collapsed", 7)
    paid = {"tokens/response_length": after(5, 1.2, 22.0)}  # the score rises: short answers are what the reward wants
    assert verdict(Made(metrics=paid), tmp_path / "b").kind == "improved"
