"""One run, read again at each question: a run that goes on gives newer answers. Nothing is written, and torch is not needed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.records import Diagnosis
from rlhf_studio.analysis.replay.scale import OneScale
from rlhf_studio.config import StageConfig
from rlhf_studio.config.glossary import glossary
from rlhf_studio.notebook.figures import Axis, DataFrame, charts_of, draw
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, RunStatus
from rlhf_studio.ui.live.charts import page_data
from rlhf_studio.visible import visible

Figure = Any
"""A ``plotly.graph_objects.Figure``; neither plotly nor pandas brings types, and both are imported where they are used."""


def open_run(run: str | Path) -> OpenRun:
    """A run by its folder or its id, while it goes on or afterwards; also one that ``open-log`` has made.

    An id, such as ``20260101-120000-abcdef``, is looked for in the workspace: ``RLHF_STUDIO_WORKSPACE``, or ``workspace`` in this folder.

    Raises :class:`StoreError` when there is no such run, or its records are damaged.
    """
    try:
        return OpenRun(paths.named_run(Path(run), Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace"))))
    except LookupError as error:
        raise StoreError(f"{error}; RLHF_STUDIO_WORKSPACE names another one", "missing") from None


class OpenRun:
    """A run that is read. Make it with :func:`open_run`.

    Attributes:
        folder: the run folder.
        reader: what the app reads runs with, for all that is not here.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.reader = RunReader(folder)
        self.reader.status()  # a folder that is no run is refused here, not at the first question

    @property
    def status(self) -> RunStatus:
        """Name, state, step and so on, as they are now."""
        return self.reader.status()

    @property
    def config(self) -> StageConfig:
        """The settings, as objects. Raises :class:`ConfigError` where a log of another program has others."""
        return self.reader.config()

    @property
    def diagnosis(self) -> Diagnosis:
        """The doctor's verdict and findings: ``diagnosis.verdict.sentence``, ``diagnosis.findings[0].advice``."""
        return diagnose(self.reader)

    @property
    def metrics(self) -> DataFrame:
        """One row for each step, one column for each metric; NaN where a step has none. The glossary of docs/metrics.md names units."""
        pandas = needed("pandas")
        steps, columns = self.reader.columns(self.reader.metric_names())
        frame = pandas.DataFrame(columns, index=pandas.Index(steps, name="step"))
        for step, metric, value in self.reader.non_finite():
            frame.loc[step, metric] = value  # an infinity is kept as such
        return frame

    @property
    def events(self) -> DataFrame:
        """The diary: step, level and text of each event, oldest first."""
        rows = [{"step": event.step, "level": event.level, "text": event.text} for event in self.reader.newest_events(100_000)]
        return needed("pandas").DataFrame(rows, columns=["step", "level", "text"])

    def rollouts(self, step: int | Iterable[int] | None = None) -> DataFrame:
        """The recorded responses of one step, of several, or of all; empty where none were recorded.

        Columns: step, sample, prompt, response, score, gold, kl (nats), length (tokens), stopped, ``reward/NAME`` for each component.
        """
        recorded = self.reader.rollout_steps()
        wanted = recorded if step is None else [step] if isinstance(step, int) else list(step)
        known = set(recorded)
        rows = [_row(number, record) for number in wanted if number in known for record in self.reader.rollouts(number)]
        columns = ["step", "sample", "prompt", "response", "score", "gold", "kl", "length", "stopped"]
        parts = list(dict.fromkeys(name for row in rows for name in row if name not in columns))
        return needed("pandas").DataFrame(rows, columns=[*columns, *parts])

    def tokens(self, step: int, sample: int = 0) -> DataFrame:
        """Every number of one recorded response, a row for each of its tokens.

        Columns: ``token`` (its text), ``id``, and what was recorded of it, such as ``logprobs`` and ``ref_logprobs`` (nats), ``kl``,
        ``values``, ``rewards``, ``advantages``, ``entropy``, ``ratio``.
        ``attrs`` has the prompt and the settings that the numbers were computed with.

        Raises :class:`StoreError` when the response was not recorded, or its text alone.
        """
        record = self.reader.rollout(step, sample)
        if record.tokens is None:
            raise StoreError(f"Of response {sample} of step {step} the text alone was recorded.", "absent")
        tokens = record.tokens
        arrays = dict(tokens.arrays)
        if self.reader.origin().kind == "watched":  # the advantages once more, for the pages: nobody whitened them
            arrays.pop("whitened_advantages", None)
        frame = needed("pandas").DataFrame({"token": tokens.response_pieces, "id": tokens.response_ids, **arrays})
        frame.index.name = "position"
        frame.attrs = {"prompt": record.prompt, "gamma": tokens.gamma, "lam": tokens.lam, "kl_coef": tokens.kl_coef}
        return frame

    @property
    def charts(self) -> dict[str, str]:
        """Keys and titles of the Live page's charts for which this run has numbers."""
        return {chart.key: chart.title for chart in charts_of(self._stage, self.metrics)}

    def figure(self, chart: str, x: Axis = "step") -> Figure:
        """A chart of the Live page. ``x``: step, episode (responses so far) or time (minutes); a path has the KL there.

        Raises KeyError for a chart that this run does not have; :attr:`charts` lists them.
        """
        metrics = self.metrics
        for drawn in charts_of(self._stage, metrics, self._unit):
            if drawn.key == chart:
                return draw(drawn, metrics, self._targets(), x, needed("plotly.graph_objects"), self._one_scale)
        raise KeyError(f"this run has no chart {chart!r}; it has {', '.join(self.charts) or 'none yet'}")

    def figures(self, x: Axis = "step") -> dict[str, Figure]:
        """Every chart of the Live page that this run has, by its key."""
        metrics, targets = self.metrics, self._targets()
        objects, one_scale, charts = needed("plotly.graph_objects"), self._one_scale, charts_of(self._stage, metrics, self._unit)
        return {chart.key: draw(chart, metrics, targets, x, objects, one_scale) for chart in charts}

    @property
    def _stage(self) -> str:
        return str(self.config.stage)

    @property
    def _unit(self) -> str:
        return self.reader.origin().unit

    @property
    def _one_scale(self) -> bool:
        """Whether score and gold share an axis, as on the Live page."""
        return OneScale(self.reader).read(self.reader.rollout_steps())

    def _targets(self) -> dict[str, list[list[float]]]:
        from rlhf_studio.ui.live.payloads import settings_payload

        return {"kl_target": settings_payload(self.config, self.reader.changes(), self.reader.origin())["kl_targets"]}

    def __repr__(self) -> str:
        status = self.status
        return f"<run {visible(status.name, lines=False)!r}, {status.state}, step {status.step}, in {str(self.folder)!r}>"

    def _repr_html_(self) -> str:
        """Name, state, verdict and a few numbers. Everything that people, files and models wrote is escaped."""
        status, metrics = self.status, self.metrics
        named, rows = glossary(), []
        for name in (tile["metric"] for tile in page_data()["tiles"] if tile["metric"] in metrics):
            known = metrics[name].dropna()
            if len(known):
                rows.append((named[name].title if name in named else name, f"{known.iloc[0]:.4g}", f"{known.iloc[-1]:.4g}"))
        cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        table = f"<table><tr><th></th><th>first</th><th>last</th></tr>{cells}</table>" if rows else ""
        head = f"<b>{escape(status.name)}</b> ({escape(status.state)}, step {status.step})"
        return f"<div>{head}<br>{escape(self.diagnosis.verdict.sentence)}{table}</div>"


def _row(step: int, record: RolloutRecord) -> dict[str, Any]:
    plain = {name: value for name, value in asdict(record).items() if name not in ("parts", "tokens")}
    return {"step": step, **plain, **{f"reward/{name}": value for name, value in record.parts.items()}}


def needed(name: str) -> Any:
    """A package of the app. Raises ImportError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{package} is not installed; run: pip install {package}") from error
