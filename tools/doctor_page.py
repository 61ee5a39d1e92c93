"""The page of the doctor's checks in docs/doctor.md, made from the registry of checks.

``python -m tools.doctor_page > docs/doctor.md`` writes it; a test compares.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor import verdict as verdicts
from rlhf_studio.analysis.doctor.check import CHECKS, Check
from rlhf_studio.analysis.doctor.checks.reward import FALL_STEPS, GOLD_ROSE
from rlhf_studio.analysis.doctor.judges import FALL_SHARE, REAL_RISE, SURE_FALL, SURE_RISE, WINDOW

TRIALS = Path(__file__).parents[1] / "benchmarks" / "results" / "trials.md"
JUDGED = """## Judged on trained runs

Lines that `python -m benchmarks.trials TRIAL --seeds SEED ...` printed (`benchmarks/results/trials.md`), one for each run that was trained
to judge the doctor and "what did it learn". Figures are the first step's and the mean of the last tenth of the steps; after a check stand
its level and the step at which it was first said; "first said" is the same of the verdict. "right": verdict, warnings and phrases are as
they should be, and the doctor, `runs show`, the report and Live say the same. The thresholds were fixed before. How phrases
are counted was changed after the seeds from 31 to 35 had been judged once, so world and world-lora were judged on seeds from 41 on, too.
"""
HEAD = """# The doctor

`python -m rlhf_studio doctor DIR` looks at a run, one that goes on or one that ended years ago, and says what it came to (the verdict)
and what is wrong with it (findings). `--json` gives the same for scripts, with the keys `verdict` and `findings`; `--until STEP` looks at
the run as it was after that step. `runs show` has the verdict too. Before Start, risky settings are told in the same form; of a run that
was started with them they are findings that hold from the beginning (`since` is 0), until the step before the one that changed them.

Made by `python -m tools.doctor_page > docs/doctor.md`.

## Levels

A **note** is worth knowing and often normal. A **warning**: the run is probably not doing what was wanted. An **alarm**: numbers or policy
are spoilt. Each finding says since when it is so, the rule that was applied, where to look (step, response, token), where it usually comes
from, what to do, and where a setting helps, which one a fork would try and from which checkpoint.

Every check works on a beginning of the run. What it says of step 12 does not depend on what came later, so "since step 12" means that
somebody who watched the run would have read it then. Responses are read at each of the first 20 steps, then every 5th up to 100, every 25th
up to 1,000 and every 250th after that; the checks of text are as exact as that. `one-phrase` reads all episodes of the steps that it
compares, the same ones as "what did it learn"; the others read the recorded responses.

## Verdicts
"""


def doctor_document() -> str:
    """The whole page as Markdown."""
    lines = [HEAD.rstrip("\n"), "", *_verdicts()]
    for family, group in groupby(CHECKS.values(), key=lambda one: one.family):
        lines += ["", f"## {family}", "", "| check | finding | rule | where it comes from | what to do |", "|---|---|---|---|---|"]
        lines += [_row(one) for one in group]
    lines += ["", JUDGED, TRIALS.read_text(encoding="utf-8").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _verdicts() -> list[str]:
    sure, real = f"{SURE_RISE:g}", f"{REAL_RISE:g}"
    dead = ", ".join(f"`{name}`" for name in verdicts.DEAD_SIGNS)
    signs = ", ".join(f"`{name}`" for name in verdicts.EXPLOIT_SIGNS)
    return [
        "| verdict | rule |",
        "|---|---|",
        f"| too early | fewer than {verdicts.FEWEST_STEPS} steps, or none of the others yet |",
        f"| improving, improved | the mean score of the last tenth of the steps is above the first step's by more than {sure} standard "
        f"errors and {real} standard deviations of single scores; *improved* when the run has ended |",
        f"| exploiting the reward | `judge-falls`: the mean gold of {WINDOW} steps is below its best by more than {SURE_FALL:g} standard "
        f"errors and {FALL_SHARE:.0%} of what it had gained, while the score rose by {GOLD_ROSE:g} standard deviations or more and has not "
        f"fallen with it, {FALL_STEPS} steps in a row. Without a gold score: the score rose, and "
        f"{verdicts.FEWEST_SIGNS} of {signs} are warnings, or `held-out-falls` "
        "is one |",
        f"| collapsed | {verdicts.FEWEST_SIGNS} alarms, one of them of {dead}; or one such alarm while the score gained less than "
        f"{verdicts.SMALL_GAIN:g} standard deviations; or, far from the reference (`kl-exploding` or `repetition` a warning), the judge "
        f"lost {verdicts.REAL_LOSS:g} while the score gained less than {verdicts.SMALL_GAIN:g}; or a run that died of numbers that are not "
        "finite. It stays until the judge is back at its start and no such alarm holds |",
        f"| nothing learned | none of these when the run has ended with {verdicts.FEWEST_STEPS} steps or more, or after "
        f"{verdicts.LONG_ENOUGH} steps and half of it; not where no score, or not its standard error, is known |",
        "",
        "A collapse comes before exploitation, and exploitation before improvement. Without a gold score the verdict says so: then nothing "
        "independent of the reward judges the run.",
        "",
        "Responses to the same prompt count as one where standard errors are concerned. Where a fork or a resume changed the reward, "
        "scores are compared from there on. Steps without a score do not count.",
    ]


def _row(one: Check) -> str:
    cells = (f"`{one.name}`", one.title, one.rule, one.cause, one.advice)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(doctor_document(), end="")
