"""What all ways of watching share: the run folder that is made when the training begins, its steps, and its end."""

from __future__ import annotations

import copy
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.attach.recording import UNCLOSED, Control, Guard, Recording
from rlhf_studio.attach.settings import as_json, config_of
from rlhf_studio.attach.steps import Response, TokenTexts, step_record
from rlhf_studio.config import PPOConfig, RunConfig, Stage
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.program_end import end_of
from rlhf_studio.runs.records import EventRecord, Origin
from rlhf_studio.token_texts import words_of
from rlhf_studio.visible import say, visible

TEXTS_ALONE = S_(
    "Some responses are texts alone: the inspector shows them cut at words, and their lengths count words. "
    "For tokens give response_ids and a tokenizer, or response_tokens."
)
_log = logging.getLogger("rlhf_studio.attach")


class Session:
    """Makes a run folder, hands steps to the thread that fills it, and ends the run.

    Args:
        name: of the run, for people; empty takes what is recorded.
        tokenizer: anything with ``decode``, or None.
        most: of each step, how many responses are kept with their tokens.

    Attributes:
        guard: the block for whatever may go wrong here.
        recording: None before the run begins, after its end, and in processes that record nothing.
        stopping: whether the training was told to stop by a person on the page.
    """

    def __init__(self, name: str, workspace: Path, tokenizer: Any | None, most: int):
        self._name, self._workspace, self.tokenizer, self._most = name, workspace, tokenizer, most
        self.guard = Guard()
        self.recording: Recording | None = None
        self.stopping = False
        self._texts, self._kl_coef = TokenTexts(None), math.nan
        self._estimator, self._ratio_level, self._told_of_texts = "k1", "token", False
        self._words: bool | None = None  # whether lengths count words; not known before the first responses
        self._episodes, self._began, self._last, self._last_step = 0, 0.0, math.nan, 0

    @property
    def active(self) -> bool:
        """Whether anything is recorded now."""
        return self.recording is not None and not self.recording.ended

    @property
    def pad(self) -> int | None:
        """The id of the tokenizer's pad token, where it has one."""
        own = getattr(getattr(self.tokenizer, "tokenizer", self.tokenizer), "pad_token_id", None)
        return own if isinstance(own, int) else None

    @staticmethod
    def now() -> float:
        """Seconds by a clock that only counts forward."""
        return time.monotonic()

    def begin(
        self,
        source: str,
        stage: Stage,
        given: Mapping[str, Any],
        base: Mapping[str, Any],
        *,
        facts: Mapping[str, Any],
        controls: Sequence[Control],
        total: int = 0,
        device: str = "",
        after: int | None = 0,
        began: float | None = None,
        unclosed: str = UNCLOSED,
        title: str = "",
        reward: str = "",
    ) -> None:
        """Make the run folder, and start the thread that fills it.

        Args:
            source: what is recorded, such as ``GRPOTrainer``.
            given: the training's settings by our dotted names; ``base`` is what has to be set for them to fit.
            facts: its own settings as they are, for people to look at.
            controls: the requests that it carries out.
            after: the last step that was made before now; None where the first one has been made too, and nobody knows how long it took.
            began: when the training began, by :meth:`now`; None for now.
            unclosed: as of :class:`~rlhf_studio.attach.recording.Recording`.
            title: the run's name where a person gave none; empty for ``source``.
            reward: as of :class:`~rlhf_studio.runs.records.Origin`.

        Raises StoreError, and ConfigError for a name that cannot be used.
        """
        name = self._name or title or source
        config, own = config_of(stage, given, name, total, base)
        # The fast tokenizers refuse to be used in two threads at once: the recording has its own.
        tokenizer, why = _own_copy(getattr(self.tokenizer, "tokenizer", self.tokenizer))
        self._texts = TokenTexts(tokenizer)
        self._kl_coef = float(config.ppo.kl_coef) if isinstance(config, RunConfig) and "ppo.kl_coef" in own else math.nan
        ppo = config.ppo if isinstance(config, RunConfig) else PPOConfig()
        self._estimator, self._ratio_level = ppo.kl_estimator, ppo.ratio_level
        self.stopping, self._told_of_texts, self._episodes, self._words = False, False, 0, None
        folder = paths.run_dir(self._workspace, paths.new_run_id())
        origin = Origin(imported=source, settings_known=False, settings_given=own, controls=list(controls), reward=reward)
        # The log is there from the start: its block holds another line when the disk is full.
        files = {paths.TRAINER: as_json(facts), paths.LOG: f"Recorded from {visible(source, lines=False)}.\n".encode()}
        create_run(folder, config, name=name, origin=origin, files=files)
        self.recording = Recording(folder, self.guard, controls, device, unclosed)
        hint = paths.where_shown(folder, Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace")))
        say(f"RLHF Studio records this training: {folder}. {hint}".rstrip(), sys.stderr)
        self.recording.plan(max(0, total))
        text = f"Recorded from {source}; all of its settings are in {paths.TRAINER} of the run." if facts else f"Recorded from {source}."
        self.recording.event(EventRecord("info", "attach", text))
        if why:
            self.recording.event(EventRecord("warning", "attach", why))
        if left := [visible(str(setting)) for setting in given if setting not in own]:
            text = f"Not among the run's settings, which show a default there: {', '.join(left)}. RLHF Studio takes no such value or name."
            self.recording.event(EventRecord("info", "attach", text[:1000]))
        self._began = self.now() if began is None else began
        self._last = math.nan if after is None else self._began
        self._last_step = after or 0

    def record(
        self,
        step: int,
        make: Callable[[], tuple[list[Response], dict[str, float]]],
        metrics: Mapping[str, float],
        events: Sequence[EventRecord] = (),
        made: float | None = None,
    ) -> None:
        """Hand over a step. ``make`` gives its responses and what follows from them; it is called in the recording's thread.

        ``metrics`` have the last word over those. Time since the step that was recorded last is shared equally by the steps since then.
        ``made`` is when the step was complete, by :meth:`now`; None for now.
        """
        recording = self.recording
        if recording is None:
            return
        now = self.now() if made is None else made
        seconds, elapsed = (now - self._last) / max(1, step - self._last_step), now - self._began
        self._last, self._last_step = now, step

        def record() -> Any:
            responses, own = make()
            told = list(events)
            times = {"time/elapsed": elapsed} | ({} if math.isnan(seconds) else {"time/total": seconds})
            if responses:
                self._episodes += len(responses)
                times["episode"] = float(self._episodes)
                lengths = [response.length for response in responses]
                if self._words is None:  # of some with tokens and some without, the lengths that are known count tokens
                    self._words = recording.words = all(length is None for length in lengths)
                if self._words:
                    times["tokens/response_length"] = sum(len(words_of(own.response or "")) for own in responses) / len(responses)
                if None in lengths and not self._told_of_texts:
                    self._told_of_texts = True
                    told.append(EventRecord("info", "attach", TEXTS_ALONE))
                if seconds > 0 and None not in lengths:
                    times["speed/tokens_per_second"] = sum(length or 0 for length in lengths) / seconds
            every = {**times, **own, **metrics}
            extra: dict[str, Any] = {"most": self._most, "kl_coef": self._kl_coef, "estimator": self._estimator}
            extra["ratio_level"] = self._ratio_level
            return step_record(step, responses, every, self._texts, events=told, **extra)

        recording.commit(record)

    def finish(self, error: BaseException | None = None) -> None:
        """End the run as the training has ended: by itself, by a person, or with an error."""
        recording, self.recording = self.recording, None
        if recording is None:
            return
        with self.guard:
            state, cause = end_of(error) if error is not None else (None, "")
            recording.close(state or ("stopped" if self.stopping else "finished"), cause)


def _own_copy(tokenizer: Any) -> tuple[Any | None, str]:
    """A copy for another thread, and nothing; of a tokenizer that cannot be copied None, and a sentence that says so."""
    try:
        return copy.deepcopy(tokenizer), ""
    except Exception as error:  # noqa: BLE001 - of a class of somebody else's
        why = S_(f"the tokenizer cannot be copied ({type(error).__name__}), so texts of tokens are not recorded")
        _log.warning("RLHF Studio goes on without some texts: %s.", why)
        return None, f"{S_(f'Incomplete: {why}.')} {S_('Give Studio another tokenizer that can be copied, or the texts themselves.')}"
