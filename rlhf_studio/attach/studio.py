"""What people call: a recording of a training that somebody else's code runs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlhf_studio.attach.events import TrainerWatch
from rlhf_studio.attach.loops import numbers_by_name, responses_of
from rlhf_studio.attach.ranks import is_first_process
from rlhf_studio.attach.recording import Control
from rlhf_studio.attach.session import Session
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import walk_fields
from rlhf_studio.language import S_
from rlhf_studio.runs.create import this_program
from rlhf_studio.runs.errors import PROGRAM_ENDED
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.visible import refuse_hidden, visible

MOST_NAME = 120
SETTINGS = [name for name, _ in walk_fields(RunConfig)]
UNCLOSED = S_(f"{PROGRAM_ENDED} without closing the recording; use `with Studio(...) as studio:` around your loop.")
MOST_RESPONSES = 256


class Studio:
    """Records a training that runs elsewhere as a run of RLHF Studio: Live, inspector, doctor, Compare and reports work on it.

    Three ways::

        Studio(run="my grpo").watch(trainer)                    # a trainer on transformers' Trainer: GRPO, RLOO, DPO, KTO, SFT, reward
        trainer.add_callback(Studio(run="my grpo"))             # the same
        with Studio(run="my loop") as studio:                   # a loop of one's own
            studio.step(prompts=..., response_ids=..., rewards=...)

    It changes nothing in the training: no random number is drawn, no gradient touched. If the recording fails (a full disk, a bug
    here), it ends with one warning, and the training goes on. Of several processes the first (rank 0) records, its own responses alone.

    Args:
        run: a name for people; empty takes the name of the trainer, or of the program's file for a loop of one's own.
        workspace: the folder of runs that the app shows; None takes ``RLHF_STUDIO_WORKSPACE``, or ``workspace`` in this folder.
        tokenizer: anything with ``decode``: it gives the texts of tokens. A Trainer's own is taken where none is given.
        config: settings of a loop of one's own by our dotted names, such as ``{"ppo.kl_coef": 0.05}``.
        controls: which requests of the page a loop of one's own carries out, ``stop`` and ``checkpoint`` (see :meth:`asked`).
            A Trainer's are known.
        total_steps: how many steps a loop of one's own is to have, for the time that is left; 0 where nobody knows.
        most_responses: of each step, how many responses are kept with their tokens. Means are always over all.

    Raises:
        ValueError: an argument that cannot be used.
    """

    def __init__(
        self,
        run: str = "",
        *,
        workspace: str | os.PathLike[str] | None = None,
        tokenizer: Any | None = None,
        config: Mapping[str, Any] | None = None,
        controls: Sequence[Control] = (),
        total_steps: int = 0,
        most_responses: int = MOST_RESPONSES,
    ):
        if len(run) > MOST_NAME:
            raise ValueError(f"a run's name has at most {MOST_NAME} characters, not {len(run)}")
        refuse_hidden(run, S_("a run's name"))
        if unknown := [name for name in controls if name not in ("stop", "checkpoint")]:
            raise ValueError(f"controls can be stop and checkpoint, not {unknown[0]!r}")
        if tokenizer is not None and not hasattr(getattr(tokenizer, "tokenizer", tokenizer), "decode"):
            raise ValueError("tokenizer must have a method decode, which makes a text of token ids")
        if not isinstance(config or {}, Mapping) or not all(isinstance(name, str) for name in config or {}):
            raise ValueError("config must be a mapping of dotted names to values, such as {'ppo.kl_coef': 0.05}")
        for name in config or {}:
            near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.85) if name.count(".") == 1 else []
            if near and name not in SETTINGS:
                raise ValueError(f"config: there is no setting {visible(name)}; did you mean {near[0]}?")
        folder = Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace") if workspace is None else workspace)
        self._session = Session(run, folder, tokenizer, most_responses)
        self._config, self._controls, self._total, self._step = dict(config or {}), list(controls), total_steps, 0
        self._over = False  # its `with` block has ended
        self._watch = TrainerWatch(self._session, self)

    @property
    def run_dir(self) -> Path | None:
        """The run's folder; None before the training begins, after its end, and in processes that record nothing."""
        return self._session.recording.run_dir if self._session.recording else None

    def note(self, text: str) -> None:
        """Add a line to the run's diary."""
        if self._session.recording is not None:
            self._session.recording.event(EventRecord("info", "log", visible(str(text))))

    # --- trainers on transformers' Trainer -----------------------------------------------------------------------------------

    def watch(self, trainer: Any) -> Self:
        """Record ``trainer`` from its next ``train()`` on. Call it in every process, so that Stop and Checkpoint reach all of them.

        Raises ValueError for an object that takes no callbacks.
        """
        if not hasattr(trainer, "callback_handler") or not hasattr(trainer, "add_callback"):
            raise ValueError(
                f"watch takes a trainer that is built on transformers' Trainer, not {type(trainer).__name__}; use step instead"
            )
        self._watch.adopt(trainer)
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An event of the Trainer: see the documentation of its callbacks."""
        self._watch.train_begin(args, state, more.get("model"), more.get("processing_class"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An event of the Trainer."""
        self._watch.step_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An event of the Trainer: the only one that changes ``control``, where a person has asked for it."""
        self._watch.step_end(args, state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """An event of the Trainer."""
        self._watch.log(args, state, logs or {})

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An event of the Trainer."""
        self._watch.train_end()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The Trainer's other events, also those of later versions: nothing is done at them."""
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # --- loops of one's own --------------------------------------------------------------------------------------------------

    def step(
        self,
        *,
        prompts: Sequence[str] | None = None,
        responses: Sequence[str] | None = None,
        prompt_ids: Any = None,
        response_ids: Any = None,
        response_tokens: Sequence[Sequence[str]] | None = None,
        prompt_mask: Any = None,
        response_mask: Any = None,
        logprobs: Any = None,
        ref_logprobs: Any = None,
        new_logprobs: Any = None,
        values: Any = None,
        entropy: Any = None,
        advantages: Any = None,
        rewards: Any = None,
        scores: Any = None,
        gold: Any = None,
        stopped: Any = None,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Record one step. Give what you have; what you leave out stays unknown on every page.

        B responses of T_i tokens each. Tables may be lists, numpy arrays or tensors; a padded table (B, T) needs ``response_mask``, or
        ``prompt_mask`` for prompts: 1 at real tokens. Without it padding counts as tokens, unless the tokenizer's pad token tells it.

        Args:
            prompts, responses: texts, B each. Responses without tokens are shown cut at words, and their lengths count words.
            prompt_ids, response_ids: token ids, a row for each response.
            response_tokens: the text of each token, where there is no tokenizer to give it.
            logprobs, ref_logprobs, new_logprobs: log-probability of each response token: of the policy that sampled it, of the
                reference, of the policy in the last pass of the update.
            values, entropy: the critic's prediction, and the policy's entropy in nats, at each response token.
            advantages: what the loss used: one number for each response, or one for each token.
            rewards: numbers, one for each response, by the name of each reward function (weighted), or such numbers alone. None is an
                unknown reward.
            scores: their sum where it is another than that.
            gold: a second score that the training never sees.
            stopped: whether each response ended by itself.
            metrics: further numbers of the step, by the names of the table of metrics (``objective/kl``, ``lr``) or any other.
            step: the step's number, which must grow; None counts.

        Raises ValueError, naming the argument and the row, for what does not fit together; RuntimeError after the ``with`` block.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "metrics", "step")}
        number = self._next(step)
        if not is_first_process():
            return
        own, numbers = responses_of(given, self._session.pad), numbers_by_name(metrics)
        if not own and not numbers:
            raise ValueError("a step needs something to record: responses, or metrics")
        self._step = number
        if self._session.guard.error is None:
            with self._session.guard:
                if self._session.recording is None:
                    self._begin(has_critic=values is not None)
                self._session.record(number, lambda: (own, {}), numbers)

    def _next(self, step: int | None) -> int:
        if self._over:
            raise RuntimeError(
                "the block of `with Studio(...) as studio:` is over, and its run has ended: call studio.step inside the block; "
                "for another run make another Studio"
            )
        number = self._step + 1 if step is None else step
        if not isinstance(number, int) or number <= self._step:
            raise ValueError(f"step must be a whole number above the last one, {self._step}; it is {number!r}")
        return number

    def _begin(self, *, has_critic: bool) -> None:
        # A holder where the loop says nothing: pages leave the critic's charts out.
        without = {"ppo.advantage": "rloo", "ppo.responses_per_prompt": 2}
        base = {} if has_critic or "ppo.advantage" in self._config else without
        known: dict[str, Any] = {"facts": self._config, "controls": self._controls, "total": self._total}
        program = this_program()
        known["title"] = f"Training loop ({program})"
        self._session.begin(program, "ppo", self._config, base, **known, after=None, unclosed=UNCLOSED)

    def asked(self, control: Control) -> bool:
        """Whether a person has asked for it on the page: ``stop`` (end your loop then), or ``checkpoint``, which is true once.

        Raises ValueError for a request that ``controls`` does not name.
        """
        if control not in self._controls:
            raise ValueError(f"name {control!r} in Studio(controls=[...]), so that the page offers it")
        recording = self._session.recording
        if recording is None or not recording.asked(control):
            return False
        if control == "checkpoint":
            recording.carried_out("checkpoint", "passed on")
        else:
            self._session.stopping = True
        return True

    def __enter__(self) -> Self:
        self._over = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over = True
        self._session.finish(error)
