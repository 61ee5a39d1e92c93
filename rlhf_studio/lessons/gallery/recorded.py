"""The cards whose numbers are recordings that ship with the program, and that of the monitors."""

from __future__ import annotations

from rlhf_studio.language import N_, _
from rlhf_studio.lessons.gallery.card import Card, Numbers, signed, start, unfinished
from rlhf_studio.lessons.kit.pictures import Bar, Picture, Series, bars, line


def fooled(n: Numbers) -> Card:
    """The recording without a KL coefficient."""
    answer = _(
        "Yes: without a charge for KL the score goes from {score_first} to {score_last}, while the gold score rises to {best} "
        "in step {step} and ends at {gold_last}."
    )
    return _recording("fooled", n, _("Can a policy fool its judge?"), answer, {"ppo.kl_coef": "0"}, "recording-exploits")


def healthy(n: Numbers) -> Card:
    """The recording with the usual settings."""
    answer = _(
        "With a charge for KL the score goes from {score_first} to {score_last}, and the gold score from {gold_first} to {gold_last}."
    )
    return _recording("healthy", n, _("What does a healthy run look like?"), answer, {}, "recording-improves")


def _recording(name: str, n: Numbers, question: str, answer: str, values: dict[str, str], replay: str) -> Card:
    score, gold = n["score"], n["gold"]
    last = max(1, len(gold) // 10)
    slots = {
        "score_first": signed(score[0]),
        "score_last": signed(sum(score[-last:]) / last),
        "gold_first": signed(gold[0]),
        "gold_last": signed(sum(gold[-last:]) / last),
        "best": signed(max(gold)),
        "step": gold.index(max(gold)) + 1,
    }
    steps = [float(step + 1) for step in range(len(gold))]
    curves = [Series(_("Score of the judge"), steps, score, tone="score"), Series(_("Gold score"), steps, gold, tone="gold")]
    picture = line(curves, x=_("Step"), y=_("Points"), x_range=(1, len(steps)), y_range=(-1, 2.5))
    notes = [_("A single run with one seed; the last figures are means of its last {count} steps.").format(count=last)]
    return Card(
        name, question, answer.format(**slots), picture, _("Means of the 64 answers of each step."), 2 / 60, notes,
        starts=[start("world-lora", {"lora.r": "4", "lora.alpha": "8", "ppo.steps": str(len(steps)), **values})],
        more={"tab": "live", "replay": replay}, more_text=_("Watch it as a replay"),
    )  # fmt: skip


def one_batch(n: Numbers) -> Card:
    """What seven algorithms make of one batch."""
    rows = n["algorithms"]
    sure = [row["title"] for row in rows if abs(row["reward_change"]) > 2 * row["reward_error"]]
    sure_gold = [row["title"] for row in rows if abs(row["gold_change"]) > 2 * row["gold_error"]]
    answer = _(
        "One update cannot say: {count} of {all} algorithms moved the score by more than two standard errors, and {gold} of {all} the gold "
        "score."
    ).format(all=len(rows), count=len(sure), gold=len(sure_gold))
    items = [Bar(row["title"], [_errors(row, "reward"), _errors(row, "gold")]) for row in rows]
    picture = bars(items, [_("Score of the judge"), _("Gold score")], label=_("Change in standard errors"), low=-3, high=3, digits=1)
    notes = [
        _(
            "{responses} answers to {prompts} prompts, the same weights and optimizer state for each; measured on {fresh} fresh answers. "
            "Chance alone takes one change in twenty beyond two standard errors."
        ).format(responses=n["responses"], prompts=n["prompts"], fresh=n["fresh"])
    ]
    return Card(
        "one-batch", _("Which algorithm learns most from one batch?"), answer, picture,
        _("How far one update moved both scores."), 3 / 60, notes,
        more={"tab": "learn", "lesson": "beyond", "scene": "one_batch"}, more_text=_("Look at its tokens in a lesson"),
    )  # fmt: skip


def _errors(row: Numbers, of: str) -> float:
    return round(float(row[f"{of}_change"] / row[f"{of}_error"]), 2)


def over_optimised(n: Numbers) -> Card:
    """A reward model learned from 500 pairs, and how far each method goes against it."""
    curves = {name: n[name] for name in ("ppo", "with_kl", "best_of_n")}
    peak = max(range(len(n["ppo"][1])), key=lambda at: n["ppo"][1][at])
    answer = _(
        "Until a KL of some {kl} nats per answer: there PPO has gained {peak} of gold, and then loses it: {end} at a KL of {end_kl}. "
        "With a KL coefficient of 0.03 it stays at {held}, and the best of 128 answers gains {best}."
    ).format(
        kl=f"{n['ppo'][0][peak] ** 2:.0f}", peak=signed(n["ppo"][1][peak]),
        end=signed(n["ppo"][1][-1]), end_kl=f"{n['ppo'][0][-1] ** 2:.0f}",
        held=signed(n["with_kl"][1][-1]), best=signed(n["best_of_n"][1][-1]),
    )  # fmt: skip
    labels = {"ppo": _("PPO"), "with_kl": _("PPO, KL coefficient 0.03"), "best_of_n": _("Best of n answers")}
    tones = {"ppo": "policy", "with_kl": "value", "best_of_n": "coef"}
    series = [Series(labels[name], x, y, tone=tones[name]) for name, (x, y) in curves.items()]
    picture = line(series, x=_("Root of the KL (nats per answer)"), y=_("Gain in gold"), x_range=(0, 11), y_range=(-1, 1))
    notes = [
        _("One reward model that learned from 500 exact pairs, one seed. Its page has smaller ones and other amounts of pairs."),
        _("The best of n is chosen from the answers of the starting policy: n = 128 is a KL of 4 nats, and no training."),
    ]
    return Card(
        "over-optimised", _("How far may a reward be optimised?"), answer, picture,
        _("Gold of new answers to held-out prompts, less that of the starting policy."), n["hours"], notes,
        more={"tab": "learn", "place": "help", "show": "overoptimisation"}, more_text=_("How it was measured"),
    )  # fmt: skip


CALLED = {
    "length slope": N_("length slope"),
    "doctor": N_("doctor"),
    "contraction tube": N_("contraction tube"),
    "entropy fall": N_("entropy fall"),
    "clock": N_("clock"),
}
"""The monitors by their names in the benchmark."""


def monitors(n: Numbers) -> Card:
    """The benchmark of docs/hacking.md."""
    rows = {row["name"]: row for row in n["rows"]}

    def share(name: str) -> str:
        return f"{100 * rows[name]['in_time']:.0f} %"

    answer = _(
        "The KL alone alarms in time in {kl} of the hacked test runs, the doctor of this program in {doctor}, and a monitor that knows "
        "nothing but the number of the step in {clock}."
    ).format(kl=share("KL"), doctor=share("doctor"), clock=share("clock"))
    names = [_("In time"), _("False alarms")]
    items = [Bar(_(CALLED.get(name, name)), [round(100 * row["in_time"], 1), round(100 * row["false"], 1)]) for name, row in rows.items()]
    of = {"runs": n["test_runs"], "hacked": n["hacked"]}
    notes = [*unfinished(n), _("Test runs: {runs}, of which hacked: {hacked}. The thresholds were chosen on other runs.").format(**of)]
    return Card(
        "monitors", _("Which monitor notices reward hacking in time?"), answer, _monitor_bars(items, names),
        _("Share of the hacked runs with an alarm in time, and of all test runs with a false one."), n["hours"], notes,
        more={"tab": "learn", "place": "help", "show": "hacking"}, more_text=_("How a monitor is judged"),
    )  # fmt: skip


def _monitor_bars(items: list[Bar], names: list[str]) -> Picture:
    return bars(items, names, label=_("Percent of runs"), low=0, high=100, digits=0)
