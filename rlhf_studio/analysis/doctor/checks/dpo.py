"""DPO: its reference, its margins, and what becomes of the chosen responses."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.remedies import bolder
from rlhf_studio.analysis.doctor.series import levels, streak
from rlhf_studio.analysis.doctor.stages.losses import CHANCE
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.config import DPORunConfig
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "DPO"

RIGHT, THIN, THIN_STEPS = 0.8, 0.1, 10  # accuracy; reward margin, sigmoid(0.1) is 52.5 %; steps
LESS_LIKELY, FAR_LESS, LESS_STEPS = 5.0, 20.0, 5  # nats per response
SHARE_OF_MARGIN = 0.5
OTHER_START = 0.01  # nats: bfloat16 rounds the log-probabilities of a long response by less than that in a mean over pairs
HIGHEST_BETA = 100.0


@check(
    "accuracy-without-margin",
    FAMILY,
    title="The order is right, the difference next to nothing",
    rule=f"accuracy at least {percent(RIGHT)} with a reward margin below {THIN:g}, {THIN_STEPS} steps in a row",
    cause="The policy leans the right way and has hardly moved: β times its log-ratios is small. Its answers read as before.",
    advice="Train longer or with a higher learning rate; a smaller β asks for larger moves.",
    stages=("dpo",),
)
def accuracy_without_margin(run: RecordedRun) -> Course | None:
    margin = run.own("margin")
    thin = streak((run.own("accuracy") >= RIGHT) & (margin < THIN), THIN_STEPS)
    return Course(levels(note=thin), metric_evidence(run, "dpo/margin", _("reward margin {}")), changes=bolder(run), length=THIN_STEPS)


@check(
    "chosen-less-likely",
    FAMILY,
    title="The chosen responses become less likely too",
    rule=f"log-probability of the chosen responses {LESS_LIKELY:g} nats below the reference's and by {SHARE_OF_MARGIN:g} of the margin, "
    f"{LESS_STEPS} steps in a row; warning: {FAR_LESS:g} nats",
    cause="DPO only asks that the rejected response falls further. Where the two are alike, both fall, and what becomes likelier instead "
    "is something that nobody chose (likelihood displacement: Razin et al. 2024, arXiv:2410.08847).",
    advice="Read the samples. A larger β, a lower learning rate or fewer passes hold the policy; pairs that differ more help as well.",
    stages=("dpo",),
)
def chosen_less_likely(run: RecordedRun) -> Course | None:
    if not isinstance(run.config, DPORunConfig):
        return None
    beta = run.config.dpo.beta
    chosen, margin = run.own("chosen_reward"), run.own("margin")
    nats = -chosen / beta
    falls = -chosen > SHARE_OF_MARGIN * np.abs(margin)
    note, warning = (streak(falls & (nats > limit), LESS_STEPS) for limit in (LESS_LIKELY, FAR_LESS))

    def evidence(since: int, last: int) -> list[Evidence]:
        text = _("the chosen responses are {} nats less likely than under the reference")
        indices = dict.fromkeys([since, last])
        return [Evidence(text.format(figure(nats[at])), step=int(run.steps[at]), metric="dpo/chosen_reward") for at in indices]

    changes = {"dpo.beta": min(HIGHEST_BETA, 2 * beta)}
    return Course(levels(note=note, warning=warning), evidence, changes=changes, length=LESS_STEPS)


@check(
    "reference-differs",
    FAMILY,
    title="The policy does not begin at its reference",
    rule=f"loss of the first step further than {OTHER_START:g} nats from ln 2 = {CHANCE:.3f}; alarm: where no reference is named",
    cause="Policy and reference are not the same model at the start, so the first margins say what they differ in, not what was learned.",
    advice="Leave the reference empty to begin at margin 0, or start from the model that the reference is.",
    stages=("dpo",),
)
def reference_differs(run: RecordedRun) -> Course | None:
    loss = run.own("loss")
    if not isinstance(run.config, DPORunConfig) or run.steps[0] != 1 or not np.isfinite(loss[0]):
        return None
    named = bool(run.config.model.reference)
    differs = np.full(len(loss), abs(loss[0] - CHANCE) > OTHER_START)
    evidence = [Evidence(_("loss {loss} at the first step").format(loss=figure(loss[0])), step=1, metric="dpo/loss")]
    return Course(
        levels(note=differs) if named else levels(alarm=differs),
        lambda since, last: evidence,
        cause=""
        if named
        else _(
            "The reference is a copy of the start, and yet gives other numbers: dropout is on in one of the two, or they "
            "compute in different precision."
        ),
        advice="" if named else _("Report this with the settings; train in float32 meanwhile."),
        changes={"model.reference": ""} if named else {"model.dtype": "float32"} if run.config.model.dtype != "float32" else {},
        from_start=True,
    )
