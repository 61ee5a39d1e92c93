"""The frozen records that cross the boundary between the engine, the run folder and the app.

The engine builds them, :mod:`rlhf_studio.runs.writer` stores them, :mod:`rlhf_studio.runs.reader` gives them back.
Arrays are numpy; nothing here knows torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rlhf_studio.language import N_, S_
from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.visible import visible

State = Literal["queued", "loading", "running", "paused", "finished", "stopped", "failed", "interrupted"]
"""``interrupted`` is never stored: the reader derives it when a run says it is alive but nobody holds its lock."""

StartMode = Literal["train", "resume", "from-start"]
"""``train`` begins a new run, ``resume`` goes on from the newest checkpoint, ``from-start`` begins a recorded run again at step 0."""

ALIVE: tuple[State, ...] = ("loading", "running", "paused")
ENDED: tuple[State, ...] = ("finished", "stopped", "failed", "interrupted")

TOKEN_QUANTITIES = (
    "logprobs",  # policy, when sampled
    "new_logprobs",  # policy, as the last pass of this step's update saw it, before that pass's optimizer step
    "ref_logprobs",  # reference policy
    "kl",  # per-token KL by the configured estimator
    "rewards",  # what PPO saw: -beta * kl, plus the score on the last token
    "values",
    "advantages",  # before whitening
    "whitened_advantages",  # what the loss used
    "returns",
    "deltas",  # TD errors: r_t + gamma * V_{t+1} - V_t
    "entropy",
    "ratio",  # exp(new_logprobs - logprobs); of the whole response where clipping limits that
    "clipped",  # 1.0 where clipping decided the last pass: the ratio is beyond the range on the side that the advantage asks for
)

CRITIC_QUANTITIES = ("values", "returns", "deltas")
"""Those that a run without a critic does not have."""


@dataclass(frozen=True)
class TokenRecord:
    """Every number of one response.

    Attributes:
        prompt_ids, response_ids: int32, shapes (P,) and (T,), without padding.
        prompt_pieces, response_pieces: the text of each token; a token that ends inside a UTF-8 character has the
            text "\\ufffd" until the character is complete.
        arrays: for each name of :data:`TOKEN_QUANTITIES` a float32 array of shape (T,); without a critic not for those of
            :data:`CRITIC_QUANTITIES`. Of an example ``logprobs`` and ``entropy`` alone; in fine-tuning also ``learned``, 1.0 where the loss
            counts the token, which runs of earlier versions do not say.
        top_ids, top_logprobs: the five likeliest tokens at each position under the policy, shapes (T, 5).
        ref_top_ids, ref_top_logprobs: the same under the reference.
        top_pieces: text of every id that occurs in the two tables above.
        gamma, lam, kl_coef: the settings the numbers were computed with; without a critic the first two are NaN.
    """

    prompt_ids: np.ndarray
    response_ids: np.ndarray
    prompt_pieces: list[str]
    response_pieces: list[str]
    arrays: dict[str, np.ndarray]
    top_ids: np.ndarray
    top_logprobs: np.ndarray
    ref_top_ids: np.ndarray
    ref_top_logprobs: np.ndarray
    top_pieces: dict[int, str]
    gamma: float
    lam: float
    kl_coef: float


@dataclass(frozen=True)
class RolloutRecord:
    """One recorded episode: what people see in the sample table, with every token's numbers.

    Attributes:
        sample: index within the step's recorded rollouts, from 0.
        score: what the last token earned, after scaling, clipping and penalties.
        parts: each reward component's weighted score.
        gold: the gold scorer's value, or None.
        kl: sum over tokens of logprob - ref_logprob (k1), in nats.
        stopped: whether the response ended with its stop token; None where a log of another program does not say.

    In runs that were opened from another program's log, a score or KL that it does not give is NaN, and a token id is -1.
    """

    sample: int
    prompt: str
    response: str
    score: float
    parts: dict[str, float]
    gold: float | None
    kl: float
    length: int
    stopped: bool | None
    tokens: TokenRecord | None


@dataclass(frozen=True)
class ResponseTokens:
    """The tokens of one recorded response; ``ids`` (int32, shape (T,)) is None and ``pieces`` empty where only its text was recorded.

    ``stopped`` is None as in :class:`RolloutRecord`.
    """

    sample: int
    response: str
    stopped: bool | None
    pieces: list[str]
    ids: np.ndarray | None


@dataclass(frozen=True)
class WatchRecord:
    """An answer to one of the fixed watched prompts. Step 0 is the starting policy.

    Attributes:
        kl: sum over tokens of logprob - ref_logprob, in nats.
        stopped: whether the answer ended with its stop token.
        pieces: the text of each token, as in :class:`TokenRecord`.
        arrays: float32 arrays of shape (T,) by name: ``logprobs``, ``ref_logprobs``, ``kl``, ``values`` (with a critic), ``entropy``.

    The last four are None, empty and empty in runs that an earlier version recorded.
    """

    sample: int
    prompt: str
    response: str
    score: float
    gold: float | None
    kl: float | None = None
    stopped: bool | None = None
    pieces: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


EPISODE_TOKENS = ("logprobs", "ref_logprobs", "values")
"""What is kept of every response token of a step, recorded or not: enough to compute rewards, advantages and whitening again."""


@dataclass(frozen=True)
class StepEpisodes:
    """All episodes of one step, also those whose tokens are not recorded one by one.

    Attributes:
        lengths: response tokens of each episode, int32, shape (N,). What follows "by token" lies one episode after the other.
        response_ids: int32, shape (sum of lengths,).
        tokens: by the names of :data:`EPISODE_TOKENS`, float32, shape (sum of lengths,), by token; no ``values`` without a critic; also
            ``kl`` where the KL estimator is ``full``, which the two log-probabilities do not give.
        scores: what the last token earned, float32, shape (N,).
        gold: float32, shape (N,), or None.
        parts: each reward component's weighted score, float32, shape (N,).
        stopped: whether the response ended with its stop token, shape (N,).
        reading: tokens read and all tokens of the text that was scored, in the reward model's own tokens, int32, shape (N, 2); None in a
            step in which no text lost its beginning.
        pieces: the text of each token that the run's earlier steps did not have, by id, of the responses and of the probes' likeliest
            tokens. A reader gives all of the run's.
    """

    lengths: np.ndarray
    response_ids: np.ndarray
    tokens: dict[str, np.ndarray]
    scores: np.ndarray
    gold: np.ndarray | None
    parts: dict[str, np.ndarray]
    stopped: np.ndarray
    pieces: dict[int, str] = field(default_factory=dict)
    reading: np.ndarray | None = None


@dataclass(frozen=True)
class Probe:
    """A sentence that every step's policy scores: an answer of the starting policy, which stays the same for the whole run.

    Attributes:
        pieces: the text of each of its T tokens.
    """

    probe: int
    prompt: str
    pieces: list[str]


@dataclass(frozen=True)
class ProbeScore:
    """What the policy of one step gives to a probe. Step 0 is the starting policy. All float32 but the ids, which are int32.

    Attributes:
        logprobs: of the probe's own tokens, shape (T,).
        top_ids, top_logprobs: the five likeliest tokens at each position, shapes (T, 5).
        start_logprobs: of those same tokens under the starting policy, shape (T, 5).
        logprobs_of_start: now, of the tokens that were the starting policy's five likeliest (step 0's ``top_ids``), shape (T, 5).
    """

    probe: int
    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray
    start_logprobs: np.ndarray
    logprobs_of_start: np.ndarray


@dataclass(frozen=True)
class SettingChange:
    """A setting that a person changed while the run went on. ``step`` is the first that was trained with it; values are plain JSON."""

    step: int
    setting: str
    old: Any
    new: Any


IN_THE_PROGRAM = ("reward.components", "data.prompts", "data.eval")
"""The settings in whose place somebody's own program has objects in its memory: a run's file shows defaults there."""

Kind = Literal["studio", "program", "watched", "log"]
"""Who trains a run: an engine of ours; somebody's own program with our engine; another trainer, which records it here; or whoever wrote
the log that it was read from."""


TOLD = {
    "log": S_(N_("read from {name}")),
    "followed": S_(N_("read from {name} as it grows")),
    "watched": S_(N_("recorded from {name}")),
    "program": S_(N_("made by {name}")),
    "studio": "",
}
"""Who trains a run of each kind, in a few words."""


MOST_TOLD = 400  # characters of the sum that a reward is


def reward_told(weights: Iterable[float], names: Iterable[str]) -> str:
    """A reward that is a sum with weights, for people: ``2 × right + 0.5 × short``."""
    return visible(" + ".join(f"{weight:g} × {name}" for weight, name in zip(weights, names, strict=True)), lines=False)[:MOST_TOLD]


@dataclass(frozen=True)
class Origin:
    """Where a run comes from, beside its settings.

    Attributes:
        parent: id of the run that it was forked from, or varied from; empty for none.
        parent_step: the step of the parent that a fork goes on from; None for a variation, which starts at 0.
        changes: the settings that differ from the parent's, by dotted name.
        sweep: id that all runs of one sweep share; empty for none.
        imported: the name of the file that a run's records were read from, or of the trainer that records it (``attach``); such a run
            cannot be trained here. Empty for runs of our own.
        log_of: the program that wrote the log, such as ``TRL``; empty where its form does not tell, and for all that is no log.
        settings_known: false for an imported run whose log does not give all settings: the others are defaults that nobody chose.
        settings_given: of such a run the dotted names of the settings that its log gives; empty otherwise.
        controls: of a run that another trainer records, what can be asked of it: some of ``stop`` and ``checkpoint``; ``stop`` alone of a
            log that is followed while it grows. None for all others.
        followed: whether it is such a log.
        program: the name of somebody's own program that trains the run with our engine (``library``, ``trl.program``): its prompts and
            rewards are in that program alone, and its process is not ours to end. Empty for all others.
        reward: of a log whose reward is a sum with weights that a person gave, and of a trainer that is watched and has such weights, that
            sum, see :func:`reward_told`; else empty.
        words: whether its responses came as texts without tokens and are cut at words: its lengths count words then, see :attr:`unit`.
    """

    parent: str = ""
    parent_step: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    sweep: str = ""
    imported: str = ""
    log_of: str = ""
    followed: bool = False
    settings_known: bool = True
    settings_given: list[str] = field(default_factory=list)
    controls: list[str] | None = None
    program: str = ""
    reward: str = ""
    words: bool = False

    @property
    def made(self) -> str:
        """How it was made from its parent, in the words of every page, report and command: from a checkpoint, or from the beginning."""
        return "" if not self.parent else "varied from" if self.parent_step is None else "forked from"

    @property
    def kind(self) -> Kind:
        """Who trains the run; everything that is said of where a run comes from begins here."""
        if self.imported:
            return "log" if self.controls is None or self.followed else "watched"
        return "program" if self.program else "studio"

    @property
    def only_read(self) -> str:
        """Why nothing here can train this run or go on with it, as the end of a sentence about it; empty where something can."""
        return {
            "log": S_(f"was {self.told}: there is no model to train. Start a new run."),
            "watched": S_(f"is recorded from {self.imported}, outside this app: its model is not here. Start a new run."),
            "program": S_(
                f"was made by {self.program}, which has its prompts and rewards: run that again, or start a new run from the policy "
                "in one of its checkpoints."
            ),
            "studio": "",
        }[self.kind]

    def knows(self, setting: str) -> bool:
        """Whether the value of a setting, named like ``ppo.kl_coef``, is what the run was trained with, and not a default of ours."""
        if self.program and setting in IN_THE_PROGRAM:
            return False
        return self.settings_known or setting in self.settings_given

    @property
    def unit(self) -> Literal["tokens", "words"]:
        """What the lengths of its responses count."""
        return "words" if self.words else "tokens"

    @property
    def trained_by(self) -> str:
        """The program or trainer in whose own process the run is trained, or the log that a process not of ours follows; else empty."""
        return self.program or (self.imported if self.controls is not None else "")

    @property
    def keeps_model(self) -> bool:
        """Whether our engine trains it, here or in somebody's program, so that its folder keeps the model."""
        return self.kind in ("studio", "program")

    @property
    def told(self) -> str:
        """Who trains the run, in a few words below its name; empty where an engine of ours does."""
        return self.tell()

    def tell(self, say: Callable[[str], str] = str) -> str:
        """The same, said by ``say``, which translates."""
        log = self.imported + (f" ({self.log_of})" if self.log_of else "")
        words = say(TOLD["followed" if self.kind == "log" and self.followed else self.kind])
        return words.format(name=self.program if self.kind == "program" else log)

    @property
    def may_stop(self) -> bool:
        """Whether whoever trains the run, or follows its log, listens to a stop that is asked for here."""
        return self.controls is None or "stop" in self.controls


@dataclass(frozen=True)
class EventRecord:
    """A line for people. ``kind`` is a stable short word for tests (``checkpoint``, ``health``, ``phase``, ``setting`` ...)."""

    level: Literal["info", "warning", "error"]
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


NOT_ALARMS = ("failure", "notify", "kept", "resume", "control")
"""Kinds of warnings and errors that are no alarms; the end of a run says why it failed itself."""


def is_alarm(level: str, kind: str) -> bool:
    """Whether people are told of an event with this level and of this kind: that the run needs somebody to look at it."""
    return level in ("warning", "error") and kind not in NOT_ALARMS


TIME_OVER = "time-over"
"""The kind of the event before a run, or a trial, stops because its time limit (engine.max_minutes) is over."""


@dataclass(frozen=True)
class StepRecord:
    """All that one PPO step leaves behind; stored in one transaction.

    ``metrics`` maps the names of :mod:`rlhf_studio.config.metrics` (``objective/kl`` ...) to numbers; non-finite ones are kept as flags.
    """

    step: int
    metrics: dict[str, float]
    rollouts: list[RolloutRecord]
    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    episodes: StepEpisodes | None = None
    probes: list[ProbeScore] = field(default_factory=list)
    changes: list[SettingChange] = field(default_factory=list)


@dataclass(frozen=True)
class Scratch:
    """What a step holds while it waits between two of its phases. It is not recorded yet: the step's commit replaces it.

    Attributes:
        step: the step that waits, one more than the run's.
        phase: the last of :data:`PHASES` that is done.
        rollouts: the step's recorded episodes. What is not known yet is NaN (``score``, ``kl``), empty (``parts``; tables of the likeliest
            tokens, of shape (T, 0)), None (``gold``), or missing among ``tokens.arrays``.
    """

    step: int
    phase: str
    rollouts: list[RolloutRecord]


@dataclass(frozen=True)
class Command:
    """A request from the app: ``kind`` as in :data:`rlhf_studio.runs.commands.CommandKind`, ``payload`` what belongs to it."""

    id: int
    kind: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class StoredEvent:
    """An event as the reader returns it; ``id`` grows by one per event of a run."""

    id: int
    time: float
    step: int
    level: str
    kind: str
    text: str
    data: dict[str, Any]


@dataclass(frozen=True)
class CheckpointInfo:
    """A complete checkpoint folder, or that of a policy snapshot; the policy is in its folder ``policy``.

    Attributes:
        best: whether its policy had the highest value of the metric that ``engine.keep_best`` names, in the step after it.
    """

    step: int
    path: str
    bytes: int
    time: float
    best: bool = False


@dataclass(frozen=True)
class BestPolicy:
    """The policy after ``step`` did best of those that were kept.

    ``metric`` had the highest ``value`` in the next step, which sampled with it; a held-out loss had the lowest, at the step itself.
    """

    step: int
    metric: str
    value: float

    @property
    def is_loss(self) -> bool:
        return is_held_out_loss(self.metric)


def is_held_out_loss(metric: str) -> bool:
    """Whether a metric is the loss on held-out examples, which a step measures after its update, and of which the lowest is the best."""
    return metric.endswith("/eval_loss")


@dataclass(frozen=True)
class Marks:
    """What people noted about a run. Archived runs are left out of the table unless they are asked for."""

    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The run's row, with the derived state.

    Attributes:
        phase: what is going on, by name, e.g. "Loading the reward model (3 of 4)".
        fraction: progress of the phase, 0 to 1, or None when unknown.
        step: the newest step of the run as it goes now. What readers return ends here.
        total_steps: how many there are to be; 0 while that is not known, before the data of some stages has been read.
        last_recorded_step: the newest step on record. Where it is larger than ``step``, the steps after ``step`` are from before a resume
            from an earlier checkpoint: each is kept, out of the readers' sight, until it is trained again.
        epoch: grows when the run went back to an earlier step (resume), so that viewers start over.
        seq: grows with every transaction.
        cause: why the run failed, with the next step; empty otherwise.
        heartbeat_age: seconds since the engine's last heartbeat, or None before the first.
        queue_position: 1 for the next to start; None when not queued.
        stop_asked_age: seconds since somebody asked the engine to stop, as long as it has not; else None.
        marks: tags and note that people gave it.
        origin: the run that it was forked or varied from, its sweep, or the file that it was read from.
        stage: what it does, as in its configuration.
        starter: who started it.
        recording: whether it came with the program: it is only read.
        unreadable: whether its records cannot be read, such as those of a newer version; ``cause`` says why, and nothing else is known.
    """

    run_id: str
    name: str
    recipe: str = ""
    state: State
    phase: str = ""
    fraction: float | None = None
    step: int = 0
    total_steps: int = 0
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    heartbeat_age: float | None = None
    epoch: int = 0
    seq: int = 0
    device: str = ""
    cause: str = ""
    pid: int | None = None
    queue_position: int | None = None
    stop_asked_age: float | None = None
    last_recorded_step: int = 0
    marks: Marks = Marks()
    origin: Origin = Origin()
    stage: str = "ppo"
    starter: Starter = Starter()
    recording: bool = False
    unreadable: bool = False


# --- the phases of a PPO step, between which a run can wait ----------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """A part of a PPO step.

    Attributes:
        name: as in the metrics: its seconds are ``time/NAME``.
        what: what it is, in the middle of a sentence.
        finds: those of :data:`TOKEN_QUANTITIES` that are known from its end on, if the run has them at all.
        done: what a step that waits at its end has, and what comes next. Empty for a part at whose end no step can wait.
        timed: whether its seconds are recorded; what is not takes next to none.
    """

    name: str
    what: str
    finds: tuple[str, ...] = ()
    done: str = ""
    timed: bool = True


PHASES = {
    phase.name: phase
    for phase in (
        Phase("rollout", S_(N_("sampling")), ("logprobs", "entropy", "values"), N_("its responses are written; their scores come next")),
        Phase("score", S_(N_("scoring")), (), N_("its responses are scored; the reference's probabilities come next")),
        Phase(
            "reference",
            S_(N_("the reference pass")),
            ("ref_logprobs", "kl"),
            N_("its responses are compared with the reference; advantages come next"),
        ),
        Phase(
            "advantages",
            S_(N_("the advantages")),
            ("rewards", "deltas", "advantages", "whitened_advantages", "returns"),
            N_("its advantages are computed; the update comes next"),
            timed=False,
        ),
        Phase("update", S_(N_("the update")), ("new_logprobs", "ratio", "clipped"), N_("its update is done; the step is recorded next")),
        Phase("record", S_(N_("recording"))),
    )
}
"""The parts of a step, in their order. After the last one the step is done."""
