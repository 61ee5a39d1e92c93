"""The Road page: the stages as cards, one click that goes along all of them, and where each result comes from.

It is drawn by ``assets/road/``. A road is gone along by a process of its own (:mod:`rlhf_studio.jobs.road.drive`), which outlives the app.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, short_name
from rlhf_studio.config.bundled import EXAMPLE_ROAD
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.jobs.road.begin import begin_road, go_on_anyway
from rlhf_studio.jobs.road.drive import start_driver
from rlhf_studio.jobs.road.headlines import of_training
from rlhf_studio.jobs.road.outcomes import examples_of
from rlhf_studio.jobs.road.own import minutes_for
from rlhf_studio.jobs.road.plan import SMALL, RoadSettings, plan
from rlhf_studio.jobs.road.state import OwnSettings, Part, Road, driver_pid, list_roads, read_road
from rlhf_studio.jobs.road.verdict import held_up, is_weak, part_verdict_of, verdict_of
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import ALIVE
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.once import Once, nonce_of
from rlhf_studio.ui.road.lineage import lineage_of
from rlhf_studio.ui.road.own import as_rows, looked_at, problem_rows, settings_of
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import member

MOST_ROADS = 20
MOST_ROUNDS = 5
MOST_EXAMPLES = 3
GONE = N_("There is no such road any more.")
Json = dict[str, Any]


class RoadPage:
    """What the Road page can ask and do."""

    def __init__(
        self, workspace: Workspace, access: Access, permissions: Permissions = NOTHING_ALLOWED, *, keep_hub_token: bool = False
    ) -> None:
        self._workspace, self._access = workspace, access
        self._permissions, self._keep_hub_token = permissions, keep_hub_token
        self._once = Once(lambda outcome: "road" in outcome)
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._hashes: dict[tuple[object, ...], str] = {}

    def build(self) -> gr.HTML:
        """The component."""
        asks = [self.road_news, self.road_lineage, self.road_examples, self.road_look]
        return panel("road", ["open_road_run"], [*asks, self.road_start, self.road_go, self.road_stop])

    @callable_by(Role.VIEWER)
    def road_news(self, data: Any, request: gr.Request) -> Json:
        """The newest roads and the requested one (``road``), how many ``older`` ones are not among them, and the parts of a new road.

        ``example`` is a recorded road, for a page without one and for who asks for it; None where there is none.
        """
        self._started = {
            road: process for road, process in self._started.items() if process.poll() is None
        }  # poll() also clears away ended child processes
        roads, requested = list_roads(self._workspace.root), _requested(data)
        listed = [road for index, road in enumerate(roads) if index < MOST_ROADS or road.id == requested]
        parts = [{"key": part.key, "title": _(part.title)} for part in plan(RoadSettings())]
        return {
            "roads": [self._news_of(road) for road in listed],
            "wanted": requested,
            "older": len(roads) - len(listed),
            "under_way": any(self._pid(road) is not None for road in roads),
            "parts": parts,
            "example": self._example(wanted=not roads or requested == EXAMPLE_ROAD),
            **self._access.rights(request, data),
            "most_rounds": MOST_ROUNDS,
        }

    def _example(self, *, wanted: bool) -> Json | None:
        try:
            road = self._recorded() if wanted else None
        except (StoreError, OSError, ValueError):  # the page does without it; the doctor of the installation is the Runs page
            return None
        return self._news_of(road) if road is not None else None

    def _recorded(self) -> Road | None:
        """The recorded road that came with the program. Raises StoreError, OSError and ValueError where it is damaged."""
        recordings = self._workspace.recordings
        return read_road(recordings.folder(EXAMPLE_ROAD)) if recordings.knows(EXAMPLE_ROAD) else None

    def _news_of(self, road: Road) -> Json:
        return {
            "id": road.id,
            "name": road.name,
            "created_at": road.created_at,
            "parts": [self._card(part, road) for part in road.parts],
            "going": self._pid(road) is not None,
            "own": short_name(road.settings.policy) if isinstance(road.settings, OwnSettings) else "",
            "held_up": _held_up(road),
            "verdict": _readable(verdict_of(road)),
        }

    def _card(self, part: Part, road: Road) -> Json:
        """A part as its card shows it. One whose run is at work, whoever started that, is under way."""
        own = isinstance(road.settings, OwnSettings)
        card = {**asdict(part), "run_state": "", "step": 0, "total_steps": 0, "weak": own and is_weak(part)}
        card["limit"] = minutes_for(road, part.key) if own and part.state == "waiting" else 0
        if part.run:
            with contextlib.suppress(StoreError):  # deleted since: the card says what is left of it
                run = self._workspace.status(part.run)
                card |= {"run_state": run.state, "step": run.step, "total_steps": run.total_steps}
                if part.state in ("stopped", "failed") and run.state in (*ALIVE, "queued"):
                    card |= {"state": "running", "problem": ""}
        headline = of_training(part.course) if part.course is not None else part.headline
        return {**card, "title": _(part.title), "headline": _readable(told(headline)), "file": Path(part.file).name}

    @callable_by(Role.VIEWER)
    def road_lineage(self, data: Any, request: gr.Request) -> Json:
        """What each run of a road was made from, checked by its hashes against what lies there now."""
        road = self._road(data)
        if road is None:
            return {"rows": [], "again": False, "problem": _(GONE)}
        return lineage_of(road, self._workspace, self._hash)

    @callable_by(Role.VIEWER)
    def road_examples(self, data: Any, request: gr.Request) -> Json:
        """Answers of the start and of the end of a road, to the first prompts of its evaluation."""
        try:
            road = self._recorded() if _requested(data) == EXAMPLE_ROAD else self._road(data)
            run = next((part.run for part in road.parts if part.key == "evaluation" and part.state == "done"), "") if road else ""
            if not run:
                return {"examples": []}
            of_all = asdict(examples_of(self._workspace.reader(run), MOST_EXAMPLES))
            return {"examples": of_all.pop("shown"), **of_all}
        except (StoreError, OSError, ValueError) as error:  # it was deleted since
            return {"examples": [], "problem": told(error)}

    @callable_by(Role.OPERATOR)
    def road_look(self, data: Any, request: gr.Request) -> Json:
        """What a road on own files (``own``, the form) would do: ``rows``, or ``problems``; starts nothing. gradio.Error for viewers."""
        self._access.require_operator(request, data)
        try:
            own = settings_of(member(data, "own"), self._workspace.root)
            return {"rows": as_rows(looked_at(own, self._workspace.root, self._permissions), self._workspace.root)}
        except ConfigError as error:
            return {"problems": problem_rows(error.problems)}

    def _hash(self, path: Path) -> str:
        """Remembered as long as no file at the path changes: its name, size, place on the disk, and the times of its text and its entry."""
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        known = [(str(file), stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for file in files for stat in [file.stat()]]
        key = (str(path), *known)
        if key not in self._hashes:
            self._hashes[key] = hash_of(path)
        return self._hashes[key]

    # --- what it does ------------------------------------------------------------------------------------------------------

    @callable_by(Role.OPERATOR)
    def road_start(self, data: Any, request: gr.Request) -> Json:
        """Begin a road through the bundled world, or with ``own`` on own files. Raises gradio.Error for viewers.

        Gives ``road``; or, with nothing begun, ``problem``, or ``problems`` with the fields of the form.
        """
        self._access.require_operator(request, data)
        return {**self._once.answer(data, lambda: self._start(data)), "nonce": nonce_of(data)}

    def _start(self, data: Any) -> Json:
        if any(self._pid(road) is not None for road in list_roads(self._workspace.root)):
            return {"problem": _("A road is under way: wait for its end, or stop it first.")}
        if (form := member(data, "own")) is not None:
            try:
                own = settings_of(form, self._workspace.root)
                looked_at(own, self._workspace.root, self._permissions)
            except ConfigError as error:
                return {"problems": problem_rows(error.problems)}
            return self._begin("your road", own)
        rounds = member(data, "rounds")
        if type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS:
            return {"problem": _("A road has from 1 to {most_rounds} rounds.").format(most_rounds=MOST_ROUNDS)}
        base = SMALL if member(data, "small") is True else RoadSettings()
        return self._begin("the world's road", RoadSettings(**{**asdict(base), "rounds": rounds}))

    def _begin(self, name: str, settings: RoadSettings | OwnSettings) -> Json:
        try:
            road = begin_road(self._workspace.root, name, settings, time.time())
            self._drive(road)
        except OSError as error:
            return {"problem": _("The road could not be begun: {error}").format(error=told(error))}
        return {"road": road.id}

    def _drive(self, road: Road) -> None:
        """Start the process that goes along a road. Raises OSError."""
        more: Json = {} if self._permissions == NOTHING_ALLOWED else {"permissions": self._permissions}
        more |= {"keep_hub_token": True} if self._keep_hub_token else {}
        self._started[road.id] = start_driver(road.folder, self._workspace.root, **more)

    @callable_by(Role.OPERATOR)
    def road_go(self, data: Any, request: gr.Request) -> Json:
        """Go on along a road that was stopped or failed; ``anyway``: whatever its parts come to. Raises gradio.Error for viewers."""
        self._access.require_operator(request, data)
        road = self._road(data)
        if road is None:
            return {"problem": _(GONE)}
        if self._pid(road) is not None:
            return {"problem": _("Another process goes along this road already.")}
        try:
            if member(data, "anyway") is True:
                go_on_anyway(road)
            self._drive(road)
        except ConfigError as error:
            return {"problem": "; ".join(told(problem.message) for problem in error.problems)}
        except OSError as error:
            return {"problem": _("The road could not be gone on with: {error}").format(error=told(error))}
        return {"road": road.id}

    @callable_by(Role.OPERATOR)
    def road_stop(self, data: Any, request: gr.Request) -> Json:
        """Ask the process of a road to stop: the part under way ends with a checkpoint. Raises gradio.Error for viewers."""
        self._access.require_operator(request, data)
        road = self._road(data)
        if road is None:
            return {"problem": _(GONE)}
        pid = self._pid(road)
        if pid is None:
            return {"problem": _("Nothing is under way on this road.")}
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, signal.SIGTERM)
        return {"road": road.id}

    def _pid(self, road: Road) -> int | None:
        """The process that goes along a road, or was started for that and loads; None when there is none."""
        pid, process = driver_pid(road.folder), self._started.get(road.id)
        return process.pid if pid is None and process is not None and process.poll() is None else pid

    def _road(self, data: Any) -> Road | None:
        requested = _requested(data)
        return next((road for road in list_roads(self._workspace.root) if road.id == requested), None)


def _held_up(road: Road) -> Json | None:
    """The part after which the road stopped because it was not worth it, and what would help."""
    weak = held_up(road)
    verdict = part_verdict_of(weak) if weak is not None else None
    return None if weak is None or verdict is None else {"title": _(weak.title), "advice": verdict.advice}


def _requested(data: Any) -> str:
    return str(member(data, "road") or "")


def _readable(text: str) -> str:
    """The same typography everywhere: a narrow space before each percent sign, and no line break before a percent sign or an arrow."""
    return re.sub(r"(?<=\d)\s*%", "\u202f%", text).replace(" \u2192 ", "\u00a0\u2192\u00a0")
