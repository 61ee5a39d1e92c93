"""Driving a road: one part after the other, with the workspace's queue for the runs. It can be stopped and continued."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.config import NOTHING_ALLOWED, EvaluationRunConfig, Permissions, RunConfig, StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.inputs.trained import model_of_run
from rlhf_studio.inputs.world.corpus import write_prompts
from rlhf_studio.jobs.export.text import readable
from rlhf_studio.jobs.road.headlines import of_comparison, of_training
from rlhf_studio.jobs.road.outcomes import comparison_of, ends_of, examples_of
from rlhf_studio.jobs.road.own import in_a_line, made_so_far, minutes_for, settings_for_part, with_origin
from rlhf_studio.jobs.road.plan import of_world, policy_for_pairs, round_of, run_settings
from rlhf_studio.jobs.road.running import POLL_SECONDS, PartFailed, RoadStopped, Say, StopSignals, run_command, run_to_its_end
from rlhf_studio.jobs.road.state import LOG, OwnSettings, Part, Road, driven, read_road, workspace_of, write_road
from rlhf_studio.jobs.road.steps import steps_in
from rlhf_studio.jobs.road.verdict import held_up, part_verdict_of, verdict_of
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.system import OURS

EXAMPLES_SAID, CHARACTERS = 3, 110
SAMPLES = 3  # responses to each prompt: each two of them are a pair, so there are as many pairs as responses
PROMPTS_SEED = 9000  # of the prompts that pairs are sampled for; the bundled prompts have other seeds


def drive(folder: Path, workspace: Path, say: Say = print, permissions: Permissions = NOTHING_ALLOWED) -> int:
    """Drive the road in ``folder`` to its end; returns one of :mod:`rlhf_studio.exit_codes`.

    A signal to end stops the part that is under way with a checkpoint. A road on own files stops after a part that was not worth it, unless
    it is to go on anyway. ``permissions``: what rewards outside the program may use. Raises
    :class:`~rlhf_studio.jobs.road.state.AlreadyDriven` when another process drives it, and OSError and ValueError when the road's file
    cannot be read or written.
    """
    with driven(folder), StopSignals() as signals:
        driver = _Driver(folder, workspace, signals, say, permissions)
        code = DONE
        if driver.road.next_part() is None:
            say(S_("every part of this road is done already"))
            return code
        while code == DONE and (part := driver.road.next_part()):
            if (weak := held_up(driver.road)) is not None:
                return _stops_here(driver.road, weak, go_on_command(folder, workspace, permissions, "--anyway"), say)
            code = driver.go_along(part)
    if code == DONE and isinstance(driver.road.settings, OwnSettings):
        _say_the_end(driver.road, workspace, say)
    if code != DONE:
        say(f"{'go on' if code == STOPPED else 'put that right, then go on'} with: {go_on_command(folder, workspace, permissions)}")
    return code


def go_on_command(folder: Path, workspace: Path, permissions: Permissions = NOTHING_ALLOWED, *more: str) -> str:
    """What a person types to go on along the road; permissions are needed again, and servers' addresses are not repeated."""
    elsewhere = [] if workspace_of(folder) == workspace else ["--workspace", str(workspace)]
    allowed = [text for file in permissions.files for text in ("--allow-custom-rewards", file)]
    return shlex.join(["python", "-m", "rlhf_studio", "road", "go", str(folder), *elsewhere, *allowed, *more])


def _stops_here(road: Road, weak: Part, command: str, say: Say) -> int:
    verdict = part_verdict_of(weak)
    assert verdict is not None  # it holds the road up
    say(S_(f"the road stops after this part: {verdict.sentence} {verdict.advice}"))
    say(S_(f"go on all the same with: {command}"))
    return STOPPED


def _say_the_end(road: Road, workspace: Path, say: Say) -> None:
    """The verdict on the whole road, and answers before and after."""
    say(verdict_of(road) or S_("the road has come to its end"))
    evaluation = road.part("evaluation")
    if evaluation.state != "done":
        return
    examples = examples_of(RunReader(workspace / paths.RUNS / evaluation.run), EXAMPLES_SAID)
    if examples.phrase:
        say(examples.phrase)
    for example in examples.shown:
        say(f"  prompt  {_line(example.prompt)}")
        say(f"  before  {_line(example.before)}{_score(example.score_before)}")
        say(f"  after   {_line(example.after)}{_score(example.score_after)}")


def _line(text: str) -> str:
    return readable(text, CHARACTERS).replace("\n", "\\n")


def _score(value: float | None) -> str:
    return "" if value is None else f"  ({value:.2f})".replace("-", "\u2212")


class _Driver:
    """Does one part after the other; ``road`` is the current state of the road, and what its file holds."""

    def __init__(self, folder: Path, workspace: Path, signals: StopSignals, say: Say, permissions: Permissions):
        self.road = read_road(folder)
        self._folder, self._runs, self._signals, self._say = folder, workspace / paths.RUNS, signals, say
        self._permissions = permissions
        given: dict[str, Any] = {} if permissions == NOTHING_ALLOWED else {"start": partial(start_engine, permissions=permissions)}
        self._dispatcher = Dispatcher(Workspace(workspace), interval=POLL_SECONDS, **given)

    def go_along(self, part: Part) -> int:
        """Do one part; returns the exit code."""
        if self._signals.received:  # the signal came just as the part before it was done
            self._say("stopped")
            return STOPPED
        self._note(part, state="running", problem="")
        self._say(f"{part.title} …")
        started, code = time.monotonic(), DONE
        try:
            changes = {"state": "done", **(self._run(part) if part.kind == "run" else self._pairs(part))}
        except RoadStopped:
            code, changes = STOPPED, {"state": "stopped"}
        except (PartFailed, ConfigError, StoreError, OSError) as error:
            code = BAD_INPUT if isinstance(error, ConfigError) else FAILED
            changes = {"state": "failed", "problem": str(error)}
        seconds = part.seconds + time.monotonic() - started
        self._note(part, seconds=seconds, **changes)
        ended = {DONE: f"{part.title}: done in {seconds:.0f} s. {changes.get('headline', '')}", STOPPED: "stopped"}
        self._say(ended.get(code, f"failed: {part.title}: {changes.get('problem', '')}").strip())
        return code

    def _note(self, part: Part, **changes: Any) -> None:
        self.road = self.road.with_part(part.key, **changes)
        write_road(self.road)

    def _run(self, part: Part) -> dict[str, Any]:
        """Do a part that is a run of the workspace. The run is made if it does not exist; a part that goes on has its run already."""
        run_id, own = part.run or paths.new_run_id(), self.road.settings
        minutes = minutes_for(self.road, part.key) if isinstance(own, OwnSettings) else 0.0
        if not (self._runs / run_id).exists():
            config, fitted = self._settings(part, minutes)
            memory = _checked(config, self._runs.parent, self._permissions)
            # first, so that a driver that is killed here leaves no run that the road does not know
            self._note(part, run=run_id, fitted=fitted)
            for sentence in fitted:
                self._say(f"  {sentence}")
            self._dispatcher.workspace.submit(config, f"{part.title} ({self.road.name})", memory, run_id=run_id)
        run_to_its_end(self._dispatcher, run_id, self._signals, self._say, minutes)
        return self._outcome(part, RunReader(self._runs / run_id))

    def _settings(self, part: Part, minutes: float) -> tuple[StageConfig, list[str]]:
        """The part's settings, and a sentence for each that followed from model and file. Raises ConfigError."""
        own = self.road.settings
        if not isinstance(own, OwnSettings):
            return run_settings(self.road, part.key, self._runs), []
        made = made_so_far(self.road, self._runs)
        config, fitted = settings_for_part(own, part.key, made, minutes)
        if minutes and isinstance(config, RunConfig) and "ppo.steps" not in own.changes:
            before = [Path(run) for run in (made.sft, made.reward_model) if run]
            steps = steps_in(config, minutes, self._runs.parent, self._permissions, before)
            if steps is not None:
                config, fitted = settings_for_part(own, part.key, made, minutes, {"ppo.steps": steps.value})
                fitted = {"ppo.steps": steps, **fitted}
        return config, [in_a_line(name, value) for name, value in fitted.items()]

    def _outcome(self, part: Part, reader: RunReader) -> dict[str, Any]:
        """What the run of a part came to, in numbers and in words."""
        own, config = self.road.settings, reader.config()
        if not isinstance(config, EvaluationRunConfig):
            course = ends_of(reader)
            said = part_verdict_of(replace(part, state="done", course=course)) if isinstance(own, OwnSettings) else None
            return {"course": course, "headline": said.sentence if said else of_training(course)}
        comparison = comparison_of(reader)
        if comparison is not None and isinstance(own, OwnSettings):
            ppo = RunReader(self._runs / self.road.part("ppo").run).config()
            comparison = with_origin(comparison, config, ppo)
        names = ("The end", "the start") if isinstance(own, OwnSettings) else ()
        return {"comparison": comparison, "headline": of_comparison(comparison, *names)}

    def _pairs(self, part: Part) -> dict[str, Any]:
        """Sample responses of a policy and let the judge compare them. A part that goes on writes its files again."""
        settings = of_world(self.road)
        number = round_of(part.key)
        seed = settings.seed + number - 1
        prompts, written, pairs = (self._folder / f"{name}-{number}.jsonl" for name in ("prompts", "responses", "pairs"))
        texts = write_prompts(PROMPTS_SEED + seed, ceil(settings.pairs / SAMPLES))
        lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in texts)
        prompts.write_text("".join(lines), encoding="utf-8")
        policy = str(policy_for_pairs(self.road, part.key, self._runs))
        model = model_of_run(policy)
        is_saved = model and model != Path(policy)  # the command below refuses a run without a checkpoint, by its name
        origin = {"policy": str(model), "policy_sha256": hash_of(model)} if model and is_saved else {}
        options = ["--prompts", str(prompts), "--samples", str(SAMPLES), "--seed", str(seed)]
        generate = ["generate", policy, *options, "--replace", "--out", str(written)]
        label = ["label", str(written), "--judge", "world", "--seed", str(seed), "--replace", "--out", str(pairs)]
        run_command(self._folder, generate, self._signals)
        headline = run_command(self._folder, label, self._signals)
        return {**origin, "file": str(pairs), "sha256": hash_of(pairs), "headline": headline}


def _checked(config: StageConfig, workspace: Path, permissions: Permissions) -> tuple[int, int] | None:
    """The memory that the run is expected to need. Raises ConfigError for what keeps it from starting."""
    preflight = inspect_run(config, workspace, permissions=permissions)
    if preflight.problems:
        raise ConfigError(preflight.problems)
    return preflight.expected_peak


def start_driver(
    folder: Path, workspace: Path, permissions: Permissions = NOTHING_ALLOWED, *, keep_hub_token: bool = False
) -> subprocess.Popen[bytes]:
    """Start the process that drives a road, in a session of its own: it goes on when the app ends. Raises OSError."""
    log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | OURS, 0o644)
    command = [sys.executable, "-m", "rlhf_studio", "road", "go", str(folder), "--workspace", str(workspace)]
    try:
        environment = child_environment(os.environ, keep_hub_token=keep_hub_token, permissions=permissions)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)
    finally:
        os.close(log)
