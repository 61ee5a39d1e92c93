"""Experiments to offer after a run: only those that would show something new about this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, with_values
from rlhf_studio.language import N_, _, together
from rlhf_studio.runs.lab.names import changes_in_words
from rlhf_studio.runs.lab.sweeps import sweep_configs
from rlhf_studio.runs.records import Origin

How = Literal["variation", "sweep", "more steps"]
Purpose = Literal["repair", "experiment", ""]
_MOST = 5
CURED = ("nothing learned", "collapsed")
"""Verdicts of which the doctor says what the next run should change."""
PRICE = N_("β is the price of each nat of KL, in points of the score.")


@dataclass(frozen=True)
class Suggestion:
    """One experiment, started with one click.

    Attributes:
        title: a few words for a button.
        why: what it would show, one sentence.
        how: ``variation`` is ``Workspace.fork(run, None, changes)``; ``sweep`` is ``Workspace.submit_sweep(config, sweep, ...)`` with the
            run's settings; ``more steps`` is ``Workspace.go_on(run, changes["ppo.steps"])``.
        purpose: a ``repair`` mends what the verdict found; an ``experiment`` shows something, and may be meant to go wrong. Empty: it is
            neither, the same run goes on.
        changes: plain JSON values by dotted name; empty for a sweep.
        sweep: the axes of a sweep; else empty.
    """

    title: str
    why: str
    how: How
    purpose: Purpose
    changes: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)


def suggestions(
    config: RunConfig, origin: Origin, verdict_kind: str, has_gold: bool, remedy: Mapping[str, Any] | None = None
) -> list[Suggestion]:
    """What to try next, the most telling first, at most five. The page makes the first one its large button.

    Args:
        config: the run's settings. What is suggested is a valid configuration and differs from it.
        origin: where the run comes from. A run of a sweep is not offered a sweep over the same setting, a variation not its way back.
        verdict_kind: as :data:`rlhf_studio.analysis.records.VerdictKind`. One of which nothing can be said yet gets none.
        has_gold: whether a gold score was recorded, so that over-optimisation can be seen.
        remedy: settings that the doctor would change in a run that learned nothing or collapsed. What it says comes first, and nothing that
            is offered besides changes the same setting by guess.
    """
    if origin.only_read or verdict_kind in ("too early", "not known", "improving"):
        return []
    cured = [_cure(remedy, verdict_kind)] if remedy and verdict_kind in CURED else []
    guessed = [offer for offer in _mend(config, verdict_kind, has_gold) if not cured or offer.changes.keys().isdisjoint(cured[0].changes)]
    offered = [*cured, *guessed, *_explore(config, verdict_kind)]
    kept: list[Suggestion] = []
    for offer in offered:
        known = any((offer.changes, offer.sweep) == (other.changes, other.sweep) for other in kept)
        if not known and _is_possible(config, offer) and not _was_done(origin, offer):
            kept.append(offer)
    return kept[:_MOST]


def _cure(remedy: Mapping[str, Any], verdict: str) -> Suggestion:
    changed = changes_in_words(remedy, _)
    begins = changed[0] if changed[1:2].isupper() else changed[0].lower()  # "KL coefficient" keeps its capital
    held, alarmed = _("The doctor's checks say that this held it back."), _("The doctor's alarm says to change this first.")
    return _repair(_("Again with {change}").format(change=begins + changed[1:]), alarmed if verdict == "collapsed" else held, remedy)


def _mend(config: RunConfig, verdict: str, has_gold: bool) -> Iterator[Suggestion]:
    """What may put right what the verdict says; after a success, what shows how far it can be trusted."""
    ppo = config.ppo
    if verdict == "improved" and ppo.kl_coef and ppo.kl_controller == "fixed":
        watch = _("watch the judge be fooled") if has_gold else _("see what the reward alone leads to")
        why = _("It is meant to go wrong: nothing holds the policy near its start then, and it finds what the judge overrates.")
        yield _experiment(_("Again without the KL penalty: {watch}").format(watch=watch), why, {"ppo.kl_coef": 0.0})
    if verdict == "collapsed":
        changes = {"ppo.learning_rate": _rounded(ppo.learning_rate / 2)}
        if ppo.critic_learning_rate:
            changes["ppo.critic_learning_rate"] = _rounded(ppo.critic_learning_rate / 2)
        yield _repair(
            _("Again with half the learning rate"), _("Steps that are too large are the commonest reason why a policy breaks."), changes
        )
        changes = {name: _rounded(value / 5) for name, value in changes.items()}
        yield _repair(_("A tenth of the learning rate"), _("Where half is still too much, this tells."), changes)
    if verdict in ("collapsed", "exploiting the reward"):
        near = _("The policy then stays nearer to its start, where the judge can be trusted.")
        if ppo.kl_controller == "adaptive":
            target = _rounded(ppo.kl_target / 2)
            yield _repair(_("Again with a smaller KL target, {target:g} nats").format(target=target), near, {"ppo.kl_target": target})
        else:
            stronger = _rounded(ppo.kl_coef * 2) if ppo.kl_coef else 0.1
            title = _("Again with a stronger KL penalty, β {stronger:g}").format(stronger=stronger)
            yield _repair(title, together(_(PRICE), near), {"ppo.kl_coef": stronger})
    if verdict == "exploiting the reward" and ppo.steps >= 4:
        fewer = {"ppo.steps": ppo.steps // 2}
        yield _repair(
            _("Stop after {steps} steps").format(steps=ppo.steps // 2),
            _("A judge is mostly fooled late in a run: fewer steps keep what was learned before."),
            fewer,
        )
    if verdict == "nothing learned":
        rate = {"ppo.learning_rate": min(1.0, _rounded(ppo.learning_rate * 3))}
        yield _repair(_("Three times the learning rate"), _("The policy hardly moved: larger steps show whether it can."), rate)
        if ppo.kl_coef and ppo.kl_controller == "fixed":
            weaker = _rounded(ppo.kl_coef / 4)
            yield _repair(
                _("A weaker KL penalty, β {weaker:g}").format(weaker=weaker),
                together(_(PRICE), _("It may be so high that the policy stays where it began.")),
                {"ppo.kl_coef": weaker},
            )
    if verdict in ("improved", "rising", "cannot tell yet", "cannot be told", "nothing learned"):
        why = _("It may not have been trained long enough.") if verdict != "improved" else _("See whether it still improves, or turns.")
        yield Suggestion(_("Go on with more steps"), why, "more steps", "", {"ppo.steps": 2 * ppo.steps})


def _explore(config: RunConfig, verdict: str) -> Iterator[Suggestion]:
    """What shows how much of the result is due to a choice."""
    ppo, lora = config.ppo, config.lora
    if verdict != "collapsed":
        seeds = [config.engine.seed + number for number in (1, 2, 3)]
        why = _("This run may have had luck. Three more, with other random numbers, show how much results differ.")
        yield Suggestion(_("Three more seeds"), why, "sweep", "experiment", sweep={"engine.seed": seeds})
    if verdict == "improved" and ppo.kl_coef and ppo.kl_controller == "fixed":
        values = [_rounded(ppo.kl_coef * factor) for factor in (0.25, 0.5, 1, 2, 4)]
        why = _("This choice matters most. Five runs show the score and the KL that each coefficient leads to.")
        yield Suggestion(_("Five KL coefficients"), why, "sweep", "experiment", sweep={"ppo.kl_coef": values})
    if verdict == "improved" and not lora.enabled:
        # Adapters learn with about ten times the rate of full fine-tuning: the two recipes of the review world differ so.
        changes = {"lora.enabled": True, "ppo.learning_rate": min(1.0, _rounded(ppo.learning_rate * 10))}
        yield _experiment(
            _("The same with LoRA"), _("Small adapters often learn as much, with less memory, at ten times the rate."), changes
        )
    if verdict == "improved" and lora.enabled and config.model.quantization == "none":
        changes = {"lora.enabled": False, "ppo.learning_rate": _rounded(ppo.learning_rate / 10)}
        yield _experiment(_("The same without LoRA"), _("All weights learn then, at a tenth of the rate; it needs more memory."), changes)


def _repair(title: str, why: str, changes: Mapping[str, Any]) -> Suggestion:
    return Suggestion(title, why, "variation", "repair", dict(changes))


def _experiment(title: str, why: str, changes: Mapping[str, Any]) -> Suggestion:
    return Suggestion(title, why, "variation", "experiment", dict(changes))


def _rounded(number: float) -> float:
    """Two digits that count, so that people can read the setting."""
    return float(f"{number:.2g}")


def _is_possible(config: RunConfig, offered: Suggestion) -> bool:
    """Whether its settings are valid and new."""
    try:
        if offered.sweep:
            return len(sweep_configs(config, offered.sweep)) > 1
        return with_values(config, offered.changes) != config
    except ConfigError:
        return False


def _was_done(origin: Origin, offered: Suggestion) -> bool:
    """Whether the run itself came from this: the same sweep, or a change of just these settings, whose other side is there to compare."""
    if offered.sweep:
        return bool(origin.sweep) and set(offered.sweep) <= set(origin.changes)
    return offered.how == "variation" and origin.parent != "" and "lora.enabled" in offered.changes and "lora.enabled" in origin.changes
