"""The Compare view: up to 20 runs side by side. Everyone who may watch may ask; nothing is changed."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.analysis.compare import MOST_RUNS, Comparison, compare, overlay, sweep_table
from rlhf_studio.analysis.compare.verdict import ONE_SEED
from rlhf_studio.analysis.compare.wording import title
from rlhf_studio.config import STAGES, StageConfig
from rlhf_studio.config.glossary import explained, glossary_of
from rlhf_studio.config.io import walk_fields
from rlhf_studio.config.metrics.metric import Term
from rlhf_studio.config.metrics.stages import SUMMARIES
from rlhf_studio.language import _, language, shown, told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.live.charts import QUANTITIES
from rlhf_studio.ui.live.payloads import encode_numbers, encode_text, without_secrets
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy

MOST_METRICS = 12
POINTS = 400  # of each line: a small chart shows no more
REMEMBERED = 8
COLOURS = ("kl", "values", "entropy")
USUAL = ("objective/scores", "gold/score", "objective/kl", "policy/entropy_avg")
Json = dict[str, Any]
Key = tuple[str, tuple[tuple[str, int, int, str], ...]]


class _Reader(RunReader):
    """A reader that parses a run's settings once, as long as their file stays as it is: that is half of a comparison's time."""

    def config(self) -> StageConfig:
        try:
            file = os.lstat(self.run_dir / paths.CONFIG)
        except OSError:
            return super().config()  # raises an error that says what is wrong
        return _settings(self.run_dir, file.st_mtime_ns, file.st_size, file.st_ino)


@lru_cache(maxsize=200)
def _settings(run_dir: Path, changed: int, size: int, inode: int) -> StageConfig:
    return RunReader(run_dir).config()


class Comparing:
    """Answers the Compare view's questions, in threads of its own. The last comparisons are kept until one of their runs moves on."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._work = Bounded("compare", threads=2, waiting=40)
        self._known: OrderedDict[Key, Comparison] = OrderedDict()
        self._lock = threading.Lock()

    @callable_by(Role.VIEWER)
    async def compare(self, data: Any, request: gr.Request) -> Response:
        """Runs side by side: ``data`` has the ``runs`` and, if wanted, the ``metrics`` whose curves are to come along."""
        return await self._answer(lambda: self._compare(data))

    @callable_by(Role.VIEWER)
    async def curves(self, data: Any, request: gr.Request) -> Response:
        """The curves of some ``metrics`` of these ``runs``."""
        return await self._answer(lambda: self._curves(*self._compared(data), _metrics(data)))

    @callable_by(Role.VIEWER)
    async def answers(self, data: Any, request: gr.Request) -> Response:
        """The answers to one watched prompt, with their tokens: ``prompt`` is its place in the comparison."""
        return await self._answer(lambda: self._answers(self._compared(data)[1], sent.member(data, "prompt")))

    @callable_by(Role.VIEWER)
    async def sweep(self, data: Any, request: gr.Request) -> Response:
        """The mean of a ``metric``'s last tenth over the values of one or two settings."""
        return await self._answer(lambda: _sweep(self._readers(data), data))

    def close(self) -> None:
        """Take no more questions."""
        self._work.close()

    async def _answer(self, make: Callable[[], bytes]) -> Response:
        try:
            body = await self._work.run(make)
        except (StoreError, ValueError, TooBusy) as error:
            body = encode_text({"problem": told(error)})
        return sent.as_json(body)

    def _readers(self, data: Any) -> list[RunReader]:
        runs = sent.member(data, "runs")
        if not isinstance(runs, list) or not all(isinstance(run, str) and run for run in runs):
            raise StoreError("There is no such run.", "missing")
        if not 1 <= len(runs) <= MOST_RUNS:
            raise ValueError(_("Between 1 and {most} runs can be compared, not {count}.").format(most=MOST_RUNS, count=len(runs)))
        return [_Reader(self._workspace.run_dir(run)) for run in runs]

    def _compared(self, data: Any) -> tuple[list[RunReader], Comparison]:
        readers = self._readers(data)
        statuses = [self._workspace.status(reader.run_dir.name) for reader in readers]
        key = language(), tuple((status.run_id, status.epoch, status.seq, f"{status.state} {status.name}") for status in statuses)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = compare(readers, [told(status.name) if status.recording else status.name or status.run_id for status in statuses])
            with self._lock:
                self._known[key] = known
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        return readers, known

    def _compare(self, data: Any) -> bytes:
        readers, comparison = self._compared(data)
        parts = [name for name in comparison.runs[0].last if name.startswith("reward/")]
        usual = [name for name in (*_usual({run.stage for run in comparison.runs}), *parts) if name in comparison.metrics][:MOST_METRICS]
        metrics = [name for name in _metrics(data) if name in comparison.metrics] or usual
        words, alike = _words({reader.origin().unit for reader in readers}), set(comparison.one_scale)
        fields = {name: field for kind in reversed(STAGES.values()) for name, field in walk_fields(kind)}
        body = {
            "runs": [asdict(run) for run in comparison.runs],
            "groups": [asdict(group) for group in comparison.groups],
            "settings": [{**asdict(row), "differs": row.differs(), "title": _title(row.setting, fields)} for row in comparison.settings],
            "metrics": [{"name": name, "one_scale": name in alike, **_word(words, name)} for name in comparison.metrics],
            "titles": {name: _word(words, name)["title"] for name in comparison.runs[0].last},
            "prompts": [prompt.prompt for prompt in comparison.watched],
            "verdict": without_secrets(comparison.verdict),
            "notes": [without_secrets(note) for note in comparison.notes],
            "luck": _(ONE_SEED),
            "quantities": [shown(asdict(quantity), ("label",)) for quantity in QUANTITIES if quantity.name in COLOURS],
            "glossary": explained({name: entry for name, entry in words.items() if name in (*COLOURS, "score", "gold", "sample_kl")}),
            "shown": metrics,
        }
        curves = self._curves(readers, comparison, metrics)
        return encode_text(body)[:-1] + b"," + curves[1:]

    @staticmethod
    def _curves(readers: Sequence[RunReader], comparison: Comparison, metrics: Sequence[str]) -> bytes:
        groups = [run.group for run in comparison.runs]
        drawn = [overlay(readers, name, groups=groups, points=POINTS) for name in metrics if name in comparison.metrics]
        curves = [
            {"metric": chart.metric, "lines": [vars(line) for line in chart.lines], "bands": [vars(band) for band in chart.bands]}
            for chart in drawn  # asdict would copy every number
        ]
        return encode_numbers({"curves": curves})

    @staticmethod
    def _answers(comparison: Comparison, number: Any) -> bytes:
        if type(number) is not int or not 0 <= number < len(comparison.watched):
            raise ValueError(_("There is no such watched prompt."))
        prompt = comparison.watched[number]
        pairs = [
            {"first": _answer_row(first), "newest": _answer_row(newest)} for first, newest in zip(prompt.first, prompt.newest, strict=True)
        ]
        return encode_text({"prompt": prompt.prompt, "answers": pairs})


def _usual(stages: Set[str]) -> Sequence[str]:
    """The metrics that are drawn unless others are asked for."""
    if len(stages) > 1:
        return (*USUAL, "optim/grad_norm", "speed/tokens_per_second")
    (stage,) = stages
    return USUAL if stage == "ppo" else SUMMARIES[stage]


def _metrics(data: Any) -> list[str]:
    """The metrics that were asked for. Raises ValueError for too many."""
    names = sent.member(data, "metrics")
    names = list(dict.fromkeys(name for name in names if isinstance(name, str))) if isinstance(names, list) else []
    if len(names) > MOST_METRICS:
        raise ValueError(_("At most {MOST_CHARTS} metrics are drawn at once.").format(MOST_CHARTS=MOST_METRICS))
    return names


def _words(units: set[str]) -> dict[str, Term]:
    """The glossary for runs whose lengths count these units."""
    words = glossary_of("words" if "words" in units else "tokens")
    length = "tokens/response_length"
    return words | {length: replace(words[length], unit=" or ".join(sorted(units)))}


def _word(words: Any, name: str) -> Json:
    entry = words.get(name) or (words.get("reward/*") if name.startswith("reward/") else None)
    called = name.removeprefix("reward/") if name.startswith("reward/") or entry is None else _(entry.title)
    return {"title": called, "unit": entry.unit if entry else ""}


def _answer_row(answer: Any) -> Json | None:
    if answer is None:
        return None
    plain = asdict(answer)
    plain["response"] = without_secrets(plain["response"])
    plain["arrays"] = {name: values for name, values in plain["arrays"].items() if name in COLOURS}
    return plain


def _title(setting: str, fields: Mapping[str, Any]) -> str:
    """What the form calls a setting; a part of a reward component in words."""
    if setting in fields:
        return _(fields[setting].title)
    words = title(setting)
    return words[:1].upper() + words[1:]


def _sweep(readers: Sequence[RunReader], data: Any) -> bytes:
    metric = sent.member(data, "metric")
    table = sweep_table(readers, metric if isinstance(metric, str) and len(metric) <= 200 else USUAL[0])
    fields = dict(walk_fields())
    titles = [_title(name, fields) for name in table.settings]
    return encode_text({**asdict(table), "titles": titles})
