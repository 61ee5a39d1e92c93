"""A trainer that is built on transformers' Trainer: what its events and its logs say, and what people ask of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlhf_studio.attach.names import metrics_of_log, over_logs
from rlhf_studio.attach.online import HOOKS, Online
from rlhf_studio.attach.ranks import Ranks
from rlhf_studio.attach.recording import Control
from rlhf_studio.attach.session import Session
from rlhf_studio.attach.settings import settings_of
from rlhf_studio.config import Stage
from rlhf_studio.runs.records import EventRecord

_STAGES: dict[str, Stage] = {
    **dict.fromkeys(("GRPO", "RLOO", "PPO", "OnlineDPO", "AsyncGRPO"), "ppo"),
    **dict.fromkeys(("DPO", "KTO", "CPO", "ORPO"), "dpo"),
    "Reward": "reward_model",
    "SFT": "sft",
}
"""By how the names of TRL's trainers and of their settings begin. Anything else is shown like fine-tuning: with its loss."""
IN_ORDER: tuple[Control, ...] = ("checkpoint", "stop")  # what is asked for is saved before it ends
WITHOUT_CONTROLS = ("PPO",)  # TRL's PPO never looks at what callbacks ask for


def kind_of(*objects: Any) -> str:
    """The first of :data:`_STAGES` with which the name of a class of one of these objects begins; empty for none."""
    names = [base.__name__ for thing in objects if thing is not None for base in type(thing).__mro__]
    return next((kind for name in names for kind in _STAGES if name.startswith(kind)), "")


class TrainerWatch:
    """Carries a trainer's events to a session. A method that is called by the trainer returns at once, and raises nothing."""

    def __init__(self, session: Session, studio: Any):
        self._session, self._studio = session, studio
        self._trainer: Any | None = None
        self._online: Online | None = None
        self._stage: Stage = "sft"
        self._source = ""
        self._logs: list[dict[str, float]] = []  # since the last record
        self._at = 0  # the optimizer step that the last of them is of
        self._after: int | None = None  # the last step before this training
        self._began: float | None = None
        self._logged: float | None = None  # when it came: a trainer with a loop of its own says no step's beginning
        self._ranks: Ranks | None = None
        self._trainings = 0
        self._first = True

    # --- getting at the trainer --------------------------------------------------------------------------------------------

    def adopt(self, trainer: Any) -> None:
        """Wrap the methods of this trainer that say more than its events do."""
        if self._trainer is trainer:
            return
        self._trainer = trainer
        for name in ("train", "training_step"):
            if hasattr(trainer, name):
                setattr(trainer, name, self._reporting(getattr(trainer, name)))
        if all(hasattr(trainer, name) for name in HOOKS):
            self._online = Online(trainer, self._session, self._deliver)

    def _reporting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reporting(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                self._flush()
                self._session.finish(error)
                raise

        return reporting

    def _look_for_trainer(self) -> None:
        """A callback is never given its trainer. It is found when the class's own ``training_step`` is called next, and then left alone."""
        trainer_class = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
        if trainer_class is None:
            return
        original, studio, adopt = trainer_class.training_step, self._studio, self._adopt_in_training

        @functools.wraps(original)
        def training_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if studio in trainer.callback_handler.callbacks:
                if trainer_class.training_step is training_step:
                    trainer_class.training_step = original
                adopt(trainer)
            return original(trainer, *args, **kwargs)

        trainer_class.training_step = training_step

    def _adopt_in_training(self, trainer: Any) -> None:
        if self._trainer is trainer or not self._session_is_ours():
            return
        with self._session.guard:
            self.adopt(trainer)
            self._begin(trainer.args, trainer.state, trainer.model, trainer.processing_class)

    def _session_is_ours(self) -> bool:
        return self._first and self._session.guard.error is None

    # --- the trainer's events ------------------------------------------------------------------------------------------------

    def train_begin(self, args: Any, state: Any, model: Any, processing_class: Any) -> None:
        """The training begins: the run folder is made, or, where the trainer is not known yet, looked for."""
        with self._session.guard:
            self._session.finish()  # of a training that has ended without saying so
            self._session.guard.error = None
            self._first = bool(state.is_world_process_zero)
            self._ranks, self._logs, self._at = Ranks(self._trainings), [], 0
            self._trainings += 1
            self._after, self._began = int(state.global_step or 0), self._session.now()
            if not self._first:
                self._ranks.follow()
            elif self._trainer is not None:
                self._begin(args, state, model, processing_class)
            else:
                self._look_for_trainer()

    def _begin(self, args: Any, state: Any, model: Any, processing_class: Any) -> None:
        kind = "" if self._online else kind_of(self._trainer, args)
        self._stage = "ppo" if self._online else _STAGES.get(kind, "sft")
        self._source = type(self._trainer).__name__ if self._trainer is not None else type(args).__name__.replace("Config", "Trainer")
        model_name = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
        own = args.to_dict() if hasattr(args, "to_dict") else dict(vars(args))
        base, total, facts = dict[str, Any](), int(state.max_steps or 0), {"trainer": self._source, "model": model_name, "args": own}
        warm_up = args.get_warmup_steps(total) if hasattr(args, "get_warmup_steps") else None  # of args itself it may be a share
        if self._online is not None:
            base, total = self._online.base_settings(args), self._online.generations(args, total)
            warm_up = warm_up and self._online.generations(args, warm_up)
            facts["rewards"] = self._online.reward_names
            self._online.begin()
        elif self._stage == "ppo" and kind != "PPO":
            base = {"ppo.advantage": "rloo", "ppo.responses_per_prompt": 2}
        processing_class = getattr(self._trainer, "processing_class", None) or processing_class
        if self._session.tokenizer is None and hasattr(getattr(processing_class, "tokenizer", processing_class), "decode"):
            self._session.tokenizer = processing_class
        self._session.begin(
            self._source,
            self._stage,
            settings_of(self._stage, {**own, "warmup_steps": warm_up}, model_name),
            base,
            facts=facts,
            controls=() if kind in WITHOUT_CONTROLS else ("stop", "checkpoint"),
            total=total,
            device=str(getattr(args, "device", "")),
            after=0 if self._online is not None else self._after,
            began=self._began,
            reward=self._online.reward if self._online is not None else "",
        )

    def step_begin(self) -> None:
        """An optimizer step begins: whatever the last one had to say has been said."""
        if self._session.active and (self._online is None or self._online.complete):
            self._flush()

    def log(self, args: Any, state: Any, logs: Mapping[str, Any]) -> None:
        """The trainer logs numbers: means since its last log."""
        if not self._session_is_ours():
            return
        with self._session.guard:
            if self._session.recording is None and self._trainer is None and any("loss" in name for name in logs):
                self._begin(args, state, None, None)  # a trainer with a loop of its own
            if int(state.global_step) == 0:
                self._before_training(metrics_of_log(self._stage, logs))
                return
            if self._online is None and self._logs and int(state.global_step) != self._at:
                self._flush()
            self._logs.append(metrics_of_log(self._stage, logs))
            self._at, self._logged = int(state.global_step), self._session.now()

    def _before_training(self, measured: Mapping[str, float]) -> None:
        """An evaluation before the first step: it belongs to none."""
        if self._session.recording is not None and measured:
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
            self._session.recording.event(EventRecord("info", "attach", f"Before the first step: {numbers}."))

    def train_end(self) -> None:
        """The training is over."""
        self._flush()
        self._session.finish()

    def _flush(self) -> None:
        """Hand over the step that is complete now."""
        if not self._session.active:
            return
        with self._session.guard:
            if self._online is not None:
                self._online.deliver()
            elif any(self._logs):
                self._record(self._at, lambda: ([], {}), self._logged)

    def _deliver(self, step: int, make: Callable[[], Any], note: str) -> None:
        """A generation batch is complete: with the numbers that were logged since the last one."""
        self._record(step, make, events=[EventRecord("info", "attach", note)] if note else [])

    def _record(self, step: int, make: Callable[[], Any], made: float | None = None, events: Sequence[EventRecord] = ()) -> None:
        logs, self._logs = self._logs, []
        self._session.record(step, make, over_logs(logs), events, made)

    # --- what people ask for -------------------------------------------------------------------------------------------------

    def step_end(self, args: Any, state: Any, control: Any) -> None:
        """Pass on what a person has asked for: the Trainer looks at ``control`` right after this event."""
        ranks = self._ranks
        if ranks is None:
            return
        with self._session.guard:
            for kind in IN_ORDER:
                if self._is_due(kind, ranks, int(state.global_step)):
                    self._carry_out(kind, args, state, control)

    def _is_due(self, kind: Control, ranks: Ranks, step: int) -> bool:
        recording = self._session.recording
        asked = recording is not None and recording.asked(kind) and not self._session.stopping
        if not ranks.several:
            return asked
        if asked and recording is not None and not ranks.told(kind):
            if not ranks.all_listen():
                recording.refuse(kind, "Not passed on: some processes have no Studio. Give one to the trainer in every process.")
                return False
            saves = kind == "stop" and recording.saves() and not ranks.told("checkpoint")
            for each in IN_ORDER if saves else (kind,):
                ranks.tell(each, step + 1)
        return ranks.due(kind, step)

    def _carry_out(self, kind: Control, args: Any, state: Any, control: Any) -> None:
        recording = self._session.recording
        several = self._ranks is not None and self._ranks.several
        if kind == "checkpoint" or (not several and recording is not None and recording.saves()):
            control.should_save = True
        if kind == "stop":
            control.should_training_stop = True
        if recording is None:
            return
        folder = f"{args.output_dir}/checkpoint-{state.global_step}"
        if control.should_save:
            recording.event(EventRecord("info", "checkpoint", f"The trainer was asked to save; its checkpoint is {folder}."))
        if kind == "stop":
            self._session.stopping = True
            recording.event(EventRecord("info", "stop", f"The trainer was asked to stop after its step {state.global_step}."))
        else:
            recording.carried_out("checkpoint", f"passed on: {folder}")
