"""The Train page's form with the settings of a run: Start makes a variation of that run, or resumes it with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, parse_config, walk_fields
from rlhf_studio.language import N_, _, together, told
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import check_settings, refuse_only_read
from rlhf_studio.runs.lab.names import fork_name
from rlhf_studio.runs.lab.resuming import RESUMABLE, check_resumed
from rlhf_studio.runs.paths import is_recording
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.form import settings_of
from rlhf_studio.ui.sent import member

MOST_SETTINGS_BYTES = 1 << 20
GONE = N_("The run that these settings came from is no longer there.")
Json = dict[str, Any]


def handed_over(reader: RunReader) -> Json:
    """A run's settings as the Train page's form takes them. ``parent`` is the run's id. It is empty for a recording and for a run that only
    others can train: a run from their settings is no variation of them."""
    return {**settings_of(reader), "parent": "" if reader.origin().only_read or is_recording(reader.run_dir) else reader.run_dir.name}


def may_copy(origin: Origin) -> bool:
    """Whether a new run can begin with a run's settings: all are known, and none stands for what is in a program's memory."""
    return origin.settings_known and origin.kind != "program"


def copied(reader: RunReader) -> Json:
    """:func:`handed_over` where that is possible. Raises StoreError where it is not."""
    origin = reader.origin()
    if not may_copy(origin):
        raise StoreError(f"The run {reader.run_dir.name} {origin.only_read}", "state")
    return handed_over(reader)


def known_settings(reader: RunReader) -> Json | None:
    """Of a run that another program has trained the settings that it gave, by our names, and its own as they are. None for runs of our own,
    whose settings are all known."""
    origin = reader.origin()
    if origin.settings_known:
        return None
    ours = settings_of(reader)["values"]
    known = {name: value for name, value in ours.items() if origin.knows(name)}
    try:
        theirs = json.loads(read_regular(reader.run_dir / paths.TRAINER, MOST_SETTINGS_BYTES, follow=False))
    except (OSError, ValueError):
        theirs = {}  # a log that was opened has none
    own = theirs.pop("args", {}) if isinstance(theirs, dict) else {}
    return {**known, **{f"trainer.{name}": value for name, value in {**theirs, **own}.items() if name not in known}}


@dataclass(frozen=True)
class Source:
    """The run that the form's settings came from."""

    status: RunStatus
    reader: RunReader

    @property
    def name(self) -> str:
        """What people call it."""
        return self.status.name or self.status.run_id

    def varied(self, config: StageConfig) -> StageConfig:
        """The form's settings as a variation has them: the recipe is the run's own."""
        return parse_config({**config.model_dump(mode="json"), "recipe": self.reader.config().recipe})

    def resumed(self, config: StageConfig) -> StageConfig:
        """The form's settings as the run itself has them after a resume: its name is its own, too."""
        own = self.reader.config()
        return parse_config({**config.model_dump(mode="json"), "recipe": own.recipe, "name": own.name})

    def describe(self, config: StageConfig) -> Json:
        """What the page says beside Start. ``step`` is the checkpoint from which the run can go on with these settings; None for none."""
        if config.stage != self.reader.config().stage:
            text = _("These settings are of another stage than {run}: a new run.").format(run=self.name)
            return {"name": "", "text": text, "step": None, "of": self.name}
        changes = {change.setting: change.new for change in check_settings(self.reader.run_dir, None, self.varied(config))}
        step, why = self._resume(config)
        text = _("A variation of {run}: a new run that begins at step 1.").format(run=self.name)
        return {"name": fork_name(self.name, None, changes), "text": together(text, why), "step": step, "of": self.name}

    def _resume(self, config: StageConfig) -> tuple[int | None, str]:
        """(the step to go on from, "") or (None, why not). Reads no weights: the start does that."""
        if self.status.state not in RESUMABLE:
            return None, ""
        saved = self.reader.checkpoints()
        if not saved or saved[-1].step == 0:
            return None, _("{run} has no checkpoint to go on from.").format(run=self.name)
        step = saved[-1].step
        try:
            check_resumed(self.status, self.reader, self.resumed(config))
        except ConfigError as error:
            first = error.problems[0]
            sentence = _("It cannot go on from step {step} with these settings: {setting} {problem}.")
            return None, sentence.format(step=step, setting=_(_title(first.field, config)), problem=told(first.message))
        return step, _("{run} can also go on from its checkpoint.").format(run=self.name)


def source_of(workspace: Workspace, data: Any) -> Source | None:
    """The run that the page names as its settings' ``parent``; None when it names none. Raises StoreError when it cannot be one."""
    run = member(data, "parent")
    if not isinstance(run, str) or not run:
        return None
    reader = workspace.reader(run)
    refuse_only_read(reader)
    return Source(workspace.status(run), reader)


def description_of(workspace: Workspace, data: Any, config: StageConfig) -> Json | None:
    """:meth:`Source.describe` for the page that sent ``data``; None when its settings came from no run."""
    try:
        source = source_of(workspace, data)
        return None if source is None else source.describe(config)
    except StoreError as error:
        return {"name": "", "text": _(GONE) if error.reason == "missing" else told(error), "step": None, "of": ""}


def _title(setting: str, config: StageConfig) -> str:
    return next((field.title or setting for name, field in walk_fields(type(config)) if name == setting), setting)
