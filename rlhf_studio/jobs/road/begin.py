"""Beginning a road: its folder, with its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.jobs.road.own import parts_of
from rlhf_studio.jobs.road.plan import plan
from rlhf_studio.jobs.road.state import OwnSettings, Road, RoadSettings, is_driven, new_road_folder, write_road


def begin_road(workspace: Path, name: str, settings: RoadSettings | OwnSettings, now: float) -> Road:
    """A new road that nobody goes along yet. Raises OSError."""
    parts = parts_of(settings) if isinstance(settings, OwnSettings) else plan(settings)
    road = Road(new_road_folder(workspace), name, settings, parts, now)
    write_road(road)
    return road


def go_on_anyway(road: Road) -> None:
    """Note that the road is to go on whatever its parts come to. Raises OSError, and ConfigError where that cannot be."""
    if not isinstance(road.settings, OwnSettings):
        raise ConfigError([Problem("--anyway", "a road through the bundled world goes on by itself; leave it out")])
    if is_driven(road.folder):
        raise ConfigError([Problem("--anyway", "another process goes along this road; stop it first")])
    write_road(replace(road, settings=replace(road.settings, anyway=True)))
