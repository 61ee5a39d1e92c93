"""From our settings to another program's: what is handed over under which name, what is changed, and what has no counterpart there.

Every setting that is looked at is noted. What differs from its default and was not looked at is named as missing, so that nothing is lost
in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import text_of, walk_fields
from rlhf_studio.language import N_, _

UNLIMITED = 1_000_000.0
"""Stands for "no limit" where the other program knows only limits."""

OF_THIS_PROGRAM = (
    "engine.device", "engine.processes", "engine.accelerate_config", "engine.threads", "engine.max_minutes", "engine.restart_if_unstable",
    "engine.keep_best", "engine.snapshot_every", "engine.record_samples", "engine.watch_prompts", "engine.probe_prompts",
    "engine.watch_every", "engine.non_finite", "generation.batch_size", "reward.gold", "name", "recipe", "stage",
)  # fmt: skip
"""Settings that say how this program executes and records. The other program does it its own way."""

NOT_THERE = {
    "model.quantization": N_("{engine} does not quantize the base so; its weights are whole."),
    "model.reference": N_("{engine}'s reference is the policy as it starts."),
    "model.value_head_init": N_("{engine} draws the value head's weights in its own way."),
    **{
        f"lora.{name}": N_("{engine}'s adapters do not have it.")
        for name in ("dropout", "bias", "use_rslora", "use_dora", "init_lora_weights")
    },
    "ppo.whiten_rewards": N_("{engine} does not scale rewards per token."),
    "ppo.whiten_advantages": N_("{engine} always whitens the advantages of a critic."),
    "ppo.target_kl": N_("{engine} always makes all passes over a batch."),
    "ppo.ratio_threshold": N_("{engine} skips no mini-batch for its ratio."),
    "ppo.reference_ema": N_("{engine}'s reference stays as it was."),
    "ppo.schedule": N_("{engine} changes no setting at a step; stop, and start again with another value."),
    "generation.response_length_min": N_("every response has the same limit."),
    "generation.top_k": N_("{engine} samples from all tokens, or by top_p."),
}
"""What is said of a setting that no option of the other program stands for."""


class InFolder(str):
    """A path that begins at the folder that is handed over."""


class Handed(NamedTuple):
    """One of our settings and the other program's that it became."""

    setting: str
    value: str
    option: str
    theirs: str


class Remark(NamedTuple):
    """A sentence about one of our settings."""

    setting: str
    sentence: str


@dataclass(frozen=True)
class Cluster:
    """The GPUs that will be used: ``nodes`` machines with ``gpus`` GPUs each."""

    gpus: int = 8
    nodes: int = 1

    @property
    def total(self) -> int:
        """All GPUs."""
        return self.gpus * self.nodes


@dataclass
class Translation:
    """What becomes of a run's settings.

    Attributes:
        engine: the other program, as people call it.
        options: the other program's settings by their own names, in the order of its script.
        handed: which of our settings each of them came from.
        changed: settings that mean something a little different there.
        missing: settings that have no counterpart there.
    """

    config: RunConfig
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    handed: list[Handed] = field(default_factory=list)
    changed: list[Remark] = field(default_factory=list)
    missing: list[Remark] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def read(self, setting: str) -> Any:
        """The value of one of our settings, by its dotted name."""
        self._seen.add(setting)
        value: Any = self.config
        for name in setting.split("."):
            value = getattr(value, name)
        return value

    def put(self, option: str, value: Any, *settings: str) -> None:
        """Set one of the other program's settings, and note which of ours it stands for."""
        self.options[option] = value
        for setting in settings:
            ours = self.read(setting)
            text = ", ".join(part.kind for part in ours) if setting == "reward.components" else text_of(ours)
            self.handed.append(Handed(setting, text, option, shown(value)))

    def change(self, setting: str, sentence: str) -> None:
        """Note that a setting means something else there."""
        self._seen.add(setting)
        self.changed.append(Remark(setting, sentence))

    def put_revision(self) -> None:
        """The policy's revision, which neither program takes."""
        if (revision := self.read("model.revision")) != "main":
            self.change(
                "model.revision",
                _("{engine} takes no revision: download {revision} to a folder, and name the folder.").format(
                    engine=self.engine, revision=revision
                ),
            )

    def put_target_modules(self, option: str, every: Any) -> None:
        """The layers with adapters; ``every`` says all linear ones."""
        names = [name.strip() for name in self.read("lora.target_modules").split(",")]
        self.put(option, every if names == ["auto"] else names, "lora.target_modules")

    def put_critic(self, option: str, policy: str) -> None:
        """The model that the critic starts as."""
        critic = self.config.critic
        if critic.kind == "separate" and critic.start == "model":
            self.put(option, self.read("critic.model"), "critic.kind", "critic.start", "critic.model")
        else:
            self.put(option, policy)
            if critic.kind == "shared" or critic.start == "reward_model":
                about = _("a value head on the policy") if critic.kind == "shared" else _("a copy of the reward model")
                sentence = _("{engine}'s critic is a model of its own that starts as the policy, where here it is {about}.").format(
                    engine=self.engine, about=about
                )
                self.change("critic.kind", sentence)
            self.read("critic.start")
        undone = _("A critic of its own has its own optimizer, which undoes any weight of the value loss; {engine} has no such weight.")
        self.change("ppo.vf_coef", undone.format(engine=self.engine))

    def change_stop_token(self) -> None:
        """Say where vLLM finds the tokens that end a response."""
        sentence = _("vLLM stops at the tokens that the model's generation_config.json names; write them there.")
        self.change("generation.stop_token", sentence)

    def close(self) -> None:
        """Name everything that differs from its default and was not looked at. Prompts and rewards have files of their own."""
        for setting, default in defaults().items():
            elsewhere = setting.startswith(("data.", "reward.")) or setting in OF_THIS_PROGRAM
            if setting in self._seen or elsewhere or setting in self.config.unused:
                continue
            off = 0.0 if setting == "ppo.ratio_threshold" else default  # its default does something that is not done there
            if (value := self.read(setting)) != off:
                why = _(NOT_THERE.get(setting, "")).format(engine=self.engine)
                self.missing.append(
                    Remark(setting, why or _("{value} is not handed over: there is no such setting.").format(value=text_of(value)))
                )


def defaults() -> dict[str, Any]:
    """The default of every setting of a PPO run, by its dotted name."""
    return {name: info.get_default(call_default_factory=True) for name, info in walk_fields(RunConfig)}


def shown(value: Any) -> str:
    """A value of the other program for people to read."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def tensor_parallel(parameters: int | None, gpus: int) -> int:
    """How many GPUs share one copy of the sampling weights: the fewest for which bfloat16 weights take at most 24 GB of each GPU.

    24 GB is a third of a GPU of 80 GB: the rest is for the key-value cache and for training, which uses the same GPUs.
    """
    share = 1
    while parameters and 2 * parameters / share > 24e9 and share * 2 <= gpus and gpus % (share * 2) == 0:
        share *= 2
    return share
