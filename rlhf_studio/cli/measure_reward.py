"""The command ``measure-reward``: how well a reward model orders preference pairs, whatever it and they come from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rlhf_studio.analysis.reward_model.accuracy import PairShare
from rlhf_studio.analysis.reward_model.lengths_and_margins import LengthRule, Margins, length_rule, margins_of
from rlhf_studio.analysis.reward_model.report import RewardReport, WrongPair, most_wrong, report_on
from rlhf_studio.cli.completions import REPLACE_HELP, check_target, write_lines
from rlhf_studio.cli.options import Subcommands, default_workspace
from rlhf_studio.config import NOTHING_ALLOWED, PairsConfig, RewardModelReward, RewardModelRunConfig, RunConfig
from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, parse_config, parse_ppo
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.inputs.checks.evaluation import reward_model_settings
from rlhf_studio.inputs.checks.rewards import check_component
from rlhf_studio.inputs.examples import Pair, PromptsError, read_pairs
from rlhf_studio.inputs.examples.held_out import same_contents, same_source
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.relative_paths import named_in, run_in_full
from rlhf_studio.inputs.trained import resolve, run_of_model
from rlhf_studio.jobs.export.text import readable
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.units import percent
from rlhf_studio.visible import say

SHOWN = 5  # pairs that the model gets most wrong, in the terminal
CHARACTERS = 300  # of each of their texts
WHAT = N_("bundled/world-reward, a folder, a hub id, or a run (its folder or id, perhaps with @STEP)")
COMPONENT = "reward.components.0."
SECTIONS = ("data", "reward", "engine")


@dataclass(frozen=True)
class Request:
    """What to measure: the model and how it reads, the pairs and how they are read, and the run's settings that say on which device."""

    reward: RewardModelReward
    data: PairsConfig
    run: RunConfig


@dataclass(frozen=True)
class Measured:
    """All that is printed or written."""

    report: RewardReport
    margins: Margins
    lengths: LengthRule
    notes: list[str]


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "measure-reward",
        help=_("how well a reward model orders preference pairs: accuracy, calibration, length bias, its worst mistakes"),
        description=_("Settings of a reward model (--reward.label POSITIVE) and of pairs (--data.chosen_column good) may be given too."),
        allow_abbrev=False,
    )
    command.add_argument("model", metavar="MODEL", help=_(WHAT))
    command.add_argument(
        "--pairs", required=True, metavar="FILE", help=_("pairs, rankings or ratings, as the stage reward_model reads them")
    )
    command.add_argument("--json", type=Path, metavar="FILE", help=_("also write all numbers, and the texts of the worst pairs, as JSON"))
    command.add_argument("--replace", action="store_true", help=_(REPLACE_HELP).replace("--out", "--json"))
    command.set_defaults(run=_measure)


def _measure(options: argparse.Namespace) -> int:
    if options.json is not None:
        check_target(options.json, "--json", replace=options.replace)
    request = request_of(options.model, options.pairs, options.overrides)
    try:
        pairs = read_pairs(request.data, lambda text: say(_("Reading the pairs: {text}").format(text=text), sys.stderr))
    except PromptsError as error:
        raise ConfigError([Problem("--pairs" if error.field == "data.source" else error.field, error.message)]) from error
    from rlhf_studio.cli.engine import before_torch

    before_torch()
    import transformers

    from rlhf_studio.engine.compute.device import choose_compute  # torch loads here, after the cheap checks
    from rlhf_studio.engine.rewards.errors import RewardError
    from rlhf_studio.engine.stages.reward_model.on_pairs import measure_on_pairs

    transformers.utils.logging.disable_progress_bar()
    try:
        done = measure_on_pairs(request.reward, pairs.rows, request.data, choose_compute(request.run), _say_progress)
    except RewardError as error:
        say(f"rlhf-studio: {told(error)}", sys.stderr)
        return FAILED
    texts = {str(wrong.place): done.texts[wrong.place] for wrong in most_wrong(done.pairs)}
    notes = [*learned_from(request), *_notes_of(pairs.rows), *pairs.notes, *done.notes]
    measured = Measured(report_on(done.pairs, texts, of=N_("pair")), margins_of(done.pairs), length_rule(done.pairs), notes)
    if options.json is not None:
        data = {"model": request.reward.model, "pairs_from": request.data.source, **measured.report.as_data()}
        more = {"margins": asdict(measured.margins), "length_rule": asdict(measured.lengths), "notes": notes}
        write_lines(options.json, [json.dumps(data | more, indent=1, allow_nan=False)], "--json")
    say(as_text(measured))
    return DONE


def _say_progress(text: str, fraction: float | None) -> None:
    say(text if fraction is None else f"{text} ({percent(fraction)})", sys.stderr)


def request_of(model: str, pairs: str, overrides: Mapping[str, str]) -> Request:
    """The settings that the command line asks for. Raises :class:`ConfigError` for a model or a setting that cannot be used."""
    if wrong := [name for name in overrides if name.split(".")[0] not in SECTIONS]:
        raise ConfigError([Problem(name, f"measure-reward takes settings of {', '.join(SECTIONS)} only") for name in wrong])
    given = {section: {name: raw for name, raw in overrides.items() if name.split(".")[0] == section} for section in SECTIONS}
    name = run_in_full(model, default_workspace() / paths.RUNS)
    try:
        (component,) = reward_model_settings(name).components
    except ModelError as error:
        raise ConfigError([Problem("MODEL", str(error))]) from error
    own = {f"{COMPONENT}{name.removeprefix('reward.')}": raw for name, raw in given["reward"].items()}
    try:
        run = parse_ppo(
            apply_overrides({"reward": {"components": [component.model_dump(mode="json")]}, "engine": {}}, own | given["engine"])
        )
        reward = run.reward.components[0]
        if not isinstance(reward, RewardModelReward):
            raise ConfigError([Problem(f"{COMPONENT}kind", "measure-reward takes a reward model alone; leave it out")])
        problems: list[Problem] = []
        check_component(reward, COMPONENT.removesuffix("."), None, problems, NOTHING_ALLOWED)
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        raise ConfigError([Problem(_named(problem.field), problem.message) for problem in error.problems]) from error
    stage = parse_config(apply_overrides({"stage": "reward_model", "data": {"source": pairs}}, given["data"]))
    assert isinstance(stage, RewardModelRunConfig)
    return Request(reward, stage.data, run)


def _named(field: str) -> str:
    """A setting of the component as a person gives it here."""
    own = f"reward.{field.removeprefix(COMPONENT)}" if field.startswith(COMPONENT) else field
    return "MODEL" if own == "reward.model" else own


def learned_from(request: Request) -> list[str]:
    """A sentence where the model is a run's and the run learned from these very pairs; else none."""
    trained = run_of_model(Path(resolve(request.reward.model)))
    if trained is None:
        return []
    try:
        reader = RunReader(trained[0])
        config = reader.config()
    except (StoreError, ConfigError):  # of another version, say: the model can be measured all the same
        return []
    if not isinstance(config, RewardModelRunConfig):
        return []
    both = config.data.model_copy(update={"source": named_in(reader.working_folder(), config.data.source), "eval": request.data.source})
    if not (same_source(both) or same_contents(both)):
        return []
    return [_("The model has learned from these pairs: the numbers say how well it remembers them, and flatter it.")]


def _notes_of(rows: list[Pair]) -> list[str]:
    """Pairs that share a prompt say less than as many prompts would."""
    prompts = len({(row.prompt, str(row.messages)) for row in rows})
    if prompts == len(rows) or prompts < 2:
        return []
    return [
        _("The {rows:,} pairs are of {prompts:,} prompts; the interval takes them as independent, and is too narrow.").format(
            rows=len(rows), prompts=prompts
        )
    ]


# --- text ------------------------------------------------------------------------------------------------------------------------


def as_text(measured: Measured) -> str:
    """Everything for a terminal: sentences, then tables, then the worst pairs."""
    parts = [
        measured.report.words,
        [_("note: {note}").format(note=note) for note in measured.notes],
        _counted(measured),
        _calibration(measured.report),
        _length(measured),
        _margins(measured.margins),
        _worst(measured.report.wrong),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _counted(measured: Measured) -> list[str]:
    headline = measured.report.fit
    lines = [
        _("pairs     {pairs:,}; {ties:,} of them ties of the people, which count in no figure").format(
            pairs=measured.report.pairs, ties=headline.ties
        )
    ]
    lines.append(
        _("accuracy  {accuracy}; equal scores, which count one half each: {equal:,}").format(
            accuracy=_share(headline.accuracy), equal=measured.margins.equal
        )
    )
    if headline.log_loss is not None:
        lines.append(_("log loss  {log_loss:.4f} nats per pair (guessing: 0.6931)").format(log_loss=headline.log_loss))
    return lines + [f"  {part.name}: {_share(part)}" for part in measured.report.groups]


def _calibration(report: RewardReport) -> list[str]:
    curve = report.calibration
    if curve.error is None:
        return []
    head = _("calibration  expected error {error}").format(error=percent(curve.error, 1))
    if curve.temperature is not None:
        head += _(", scores lie {temperature:.2f} times as far apart as they should").format(temperature=curve.temperature)
    lines = [head, _("  sigmoid of the margin   pairs    mean   people agreed")]
    for part in curve.bins:
        if part.predicted is not None and part.right is not None:
            span = _("{low} to {high}").format(low=percent(part.low), high=percent(part.high))
            lines.append(f"  {span:21}  {part.pairs:6,}  {percent(part.predicted, 1):>6}   {percent(part.right, 1):>6}")
    return lines


def _length(measured: Measured) -> list[str]:
    rule, bias = measured.lengths, measured.report.length
    if rule.rule.share is None:
        return []
    lines = [
        _("length (in tokens of the model)"),
        _("  right where the chosen response is longer   {longer}").format(longer=_share(rule.longer)),
        _("  right where it is shorter                   {shorter}").format(shorter=_share(rule.shorter)),
        _('  the rule "the longer one is better"         {rule}').format(rule=_share(rule.rule)),
    ]
    if bias.correlation is not None:
        lines.append(_("  correlation of score and length             {correlation:+.2f}").format(correlation=bias.correlation))
    return lines


def _margins(margins: Margins) -> list[str]:
    if margins.mean is None or margins.deviation is None:
        return []
    shares = "  ".join(f"{percent(share)}: {value:+.3g}" for share, value in margins.quantiles.items())
    return [
        _("margins (score of the chosen less that of the rejected response, as PPO sees scores)"),
        _("  mean {mean:+.4g}, standard deviation {deviation:.4g}").format(mean=margins.mean, deviation=margins.deviation),
        _("  quantiles  {shares}").format(shares=shares),
    ]


def _worst(wrong: list[WrongPair]) -> list[str]:
    if not wrong:
        return []
    lines = [_("most wrong ({shown} pairs)").format(shown=min(SHOWN, len(wrong)))]
    for pair in wrong[:SHOWN]:
        lines.append(
            _("  row {number}: the model gives the chosen response {probability}").format(
                number=pair.number, probability=percent(pair.probability, 1)
            )
        )
        prompt, chosen, rejected = (readable(text, CHARACTERS).replace("\n", "\\n") for text in pair.texts or ("", "", ""))
        lines += [
            _("    prompt            {prompt}").format(prompt=prompt),
            _("    chosen   {chosen:8.3f} {chosen2}").format(chosen=pair.chosen, chosen2=chosen),
            _("    rejected {rejected:8.3f} {rejected2}").format(rejected=pair.rejected, rejected2=rejected),
        ]
    return lines


def _share(part: PairShare) -> str:
    if part.share is None or part.low is None or part.high is None:
        return _("no such pairs")
    return _("{share} of {pairs:,} (95 % interval {low} to {high})").format(
        share=percent(part.share, 1), pairs=part.pairs, low=percent(part.low, 1), high=percent(part.high, 1)
    )
