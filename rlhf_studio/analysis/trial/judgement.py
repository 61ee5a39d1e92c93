"""What a trial says, read from its run folder and from the files of its model."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.analysis.trial.measured import measured
from rlhf_studio.analysis.trial.rule import Judgement, judge, night_of
from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.inputs.estimate.device import find_device
from rlhf_studio.inputs.fitted import fitted_settings, room_for_answers
from rlhf_studio.runs.lab.trial import tried
from rlhf_studio.runs.reader import RunReader


def judgement_of(run_dir: Path, seconds: float, until: str) -> Judgement | None:
    """What a trial says of a run that may take so many seconds from now on; None before its first step is done. Raises StoreError."""
    config = tried(run_dir)
    seen = measured(RunReader(run_dir), config)
    if seen is None:
        return None
    rate = fitted_settings(config, (), find_device(config.engine), with_data=False).get(f"{config.stage}.learning_rate")
    night, usual_rate = night_of(config, seconds, until), None if rate is None else rate.value
    return judge(seen, config, night, room_for_answers(config), usual_rate)


def corrected(config: StageConfig, judgement: Judgement) -> StageConfig:
    """The settings with all corrections. Raises ConfigError where they do not go together."""
    return with_values(config, {row.setting: row.new for row in judgement.corrections})
