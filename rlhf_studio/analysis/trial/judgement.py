"""What a trial says, read from its run folder and from the files of its model."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.analysis.doctor.run_data import RunCache
from rlhf_studio.analysis.trial.figures import figures_of
from rlhf_studio.analysis.trial.rule import Judgement, judge, night_of
from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.inputs.fitted import room_for_answers
from rlhf_studio.runs.lab.trial import tried
from rlhf_studio.runs.reader import RunReader


def judgement_of(run_dir: Path, seconds: float, until: str) -> Judgement | None:
    """What a trial says of a run that may take so many seconds from now on; None before its first step is done. Raises StoreError."""
    config = tried(run_dir)
    seen = figures_of(RunCache(RunReader(run_dir)).read(), config)
    if seen is None:
        return None
    return judge(seen, config, night_of(config, seconds, until), room_for_answers(config))


def corrected(config: StageConfig, judgement: Judgement) -> StageConfig:
    """The settings with all corrections. Raises ConfigError where they do not go together."""
    return with_values(config, judgement.together)
