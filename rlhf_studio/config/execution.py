"""How responses are sampled, and how the run executes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator, model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.language import S_

TRACKERS = ("trackio", "tensorboard", "wandb")
_STOP = r"(eos|\d{1,7}|<[^\s,]{1,80}>|\[[^\s,]{1,80}\])"  # special tokens stand in brackets: <|im_end|>, </s>, [SEP]


class GenerationConfig(Section):
    """How responses are sampled."""

    response_length: int = setting(32, "Response length", "Most tokens the policy may write.", unit="tokens", level="basic", ge=1, le=8192)
    response_length_min: int = setting(
        0, "Shortest limit", "When above 0, each episode's limit is drawn between this and the response length.", unit="tokens", ge=0,
        le=8192,
    )  # fmt: skip
    batch_size: int = setting(
        0, "Sampling batch size",
        "Responses that a process samples at the same time; fewer need less memory, take longer and change nothing else. "
        "0 samples all of a step together.",
        unit="episodes", ge=0, le=65536,
    )  # fmt: skip
    temperature: float = setting(
        1.0, "Temperature", "Logits are divided by this, in sampling and in every log-probability.", level="basic", ge=1e-6, le=10
    )
    top_k: int = setting(
        0, "Top-k", "Sample from the k likeliest tokens only; 0 keeps all. Truncation makes the KL estimate too low.", ge=0, le=1_000_000
    )
    top_p: float = setting(1.0, "Top-p", "Sample from the smallest set of tokens with this much probability; 1 keeps all.", gt=0, le=1)
    stop_token: str = setting(
        "eos", "Stop token",
        "What ends a response: eos (every token that the model's files name as an end, and the one with which its chat template closes an "
        "answer, if data.chat_template is on), none, or token ids and special tokens of your choice, separated by commas.",
        pattern=rf"^(none|{_STOP}(\s*,\s*{_STOP})*)$", max_length=400, number=True,
        allowed=S_("eos, none, or token ids and special tokens, separated by commas"),
    )  # fmt: skip

    @property
    def stop_tokens(self) -> tuple[str, ...]:
        """``eos``, token ids and texts of special tokens that end a response; empty where only its length does."""
        return () if self.stop_token == "none" else tuple(part.strip() for part in self.stop_token.split(","))

    @field_validator("stop_token", mode="before")
    @classmethod
    def _list_as_text(cls, value: Any) -> Any:
        """A list of token ids and texts stands for its text."""
        several = isinstance(value, list) and value and all(type(part) in (int, str) for part in value)
        return ", ".join(map(str, value)) if several else value

    @model_validator(mode="after")
    def _fits_together(self) -> GenerationConfig:
        if self.response_length_min > self.response_length:
            raise ValueError(
                f"response_length_min: {self.response_length_min} is larger than response_length {self.response_length}; use at most that"
            )
        return self


class EngineConfig(Section):
    """How the run executes and what it keeps."""

    seed: int = setting(0, "Seed", "Fixes prompt order, sampling and initialisation.", level="basic", ge=0, le=2**31 - 1)
    device: str = setting(
        "auto", "Device",
        "auto: the first GPU when there is one, else the CPU. cuda: a GPU, or one for each of several processes. cuda:1 is the second GPU.",
        level="basic", pattern=r"^(auto|cpu|cuda|cuda:\d{1,3})$",
        allowed=S_("auto, cpu, cuda, or one GPU by its number: cuda:0, cuda:1 and so on"),
    )  # fmt: skip
    processes: int = setting(
        1, "Processes",
        "Processes that train together, each with its share of every batch: one per GPU, or several on a CPU. 0 takes every GPU there is.",
        unit="processes", ge=0, le=1024,
    )  # fmt: skip
    accelerate_config: str = setting(
        "", "Accelerate configuration file",
        "Written by 'accelerate config': several machines, or FSDP, which splits the weights; replaces the number of processes.",
        level="basic", names="settings", max_length=4096,
    )  # fmt: skip
    threads: int = setting(0, "CPU threads", "Threads for computation on the CPU; 0 lets PyTorch choose.", ge=0, le=1024)
    checkpoint_every: int = setting(
        20, "Checkpoint every", "A checkpoint is written after this many steps, and always at the end; 0 only at the end.", unit="steps",
        ge=0, le=1_000_000,
    )  # fmt: skip
    max_minutes: float = setting(
        0.0, "Time limit",
        "The run stops after so many minutes of training, with a checkpoint, when the step that it is in is done; a resume goes on for as "
        "long again. 0: no limit.",
        unit="minutes", ge=0, le=100_000,
    )  # fmt: skip
    restart_if_unstable: int = setting(
        0, "Restart if unstable",
        "If minibatches are left out or the KL passes its target in the first steps, the run begins again with a lower learning "
        "rate, at most so many times; its record says so. 0 only says that it is not stable.",
        unit="restarts", ge=0, le=2,
    )  # fmt: skip
    keep_checkpoints: int = setting(
        2, "Keep checkpoints", "Older checkpoints beyond this number are removed, but for those that another run is made from.",
        unit="checkpoints", ge=1, le=10_000,
    )  # fmt: skip
    keep_best: Literal["none", "gold/score", "objective/scores", "objective/rlhf_reward", "eval_loss"] = setting(
        "none",
        "Keep the best",
        "The checkpoint whose policy had the highest value of this metric, in the step that sampled with it, is kept as well, however old "
        "it is. eval_loss, the loss on held-out examples, is for the stages other than PPO: the lowest is kept.",
    )
    snapshot_every: int = setting(
        0,
        "Snapshot every",
        "The policy alone (with LoRA its adapter) is kept after this many steps, to try it later; training cannot go on from it. 0 keeps "
        "none.",
        unit="steps",
        ge=0,
        le=1_000_000,
    )
    record_samples: int = setting(
        16,
        "Recorded responses",
        "Responses per step whose every token is kept for the inspector; of the stages that learn from "
        "examples, so many examples of each step that is watched.",
        unit="responses",
        ge=1,
        le=4096,
    )
    watch_prompts: int = setting(
        6, "Watched prompts", "Fixed prompts that are answered again and again, to compare with the starting policy.", unit="prompts", ge=0,
        le=256,
    )  # fmt: skip
    probe_prompts: int = setting(
        4, "Probes", "So many of the starting policy's answers to the watched prompts are read again after every step, to see which tokens "
        "become likelier; at most as many as are watched, 0 for none.", unit="prompts", ge=0, le=32,
    )  # fmt: skip
    watch_every: int = setting(
        5, "Watch every",
        "Steps between two answers to the watched prompts; in the stages that learn from examples, also between two records of examples.",
        unit="steps", ge=1, le=1_000_000,
    )  # fmt: skip
    report_to: str = setting(
        "", "Report to",
        "Experiment trackers that get every step as well, separated by commas: trackio, tensorboard, wandb. Empty: none.", max_length=200,
    )  # fmt: skip
    notify: str = setting(
        "",
        "Tell",
        "Who is told when the run ends and at its first alarm of each kind, separated by commas: names of addresses that the program was "
        "started with (--notify-url NAME=URL), which get JSON, and desktop for a note on this machine. Empty: nobody.",
        max_length=400,
    )
    non_finite: Literal["stop", "skip"] = setting(
        "stop",
        "On NaN or infinity",
        "stop ends the run with the cause; skip leaves out that update, or the minibatches concerned, and goes on, at most 10 times in a "
        "run. So too for failed rewards.",
    )

    @property
    def trackers(self) -> list[str]:
        """The names in ``report_to``, each once."""
        return list(dict.fromkeys(name.strip() for name in self.report_to.split(",") if name.strip()))

    @property
    def notified(self) -> list[str]:
        """The names in ``notify``, each once."""
        return list(dict.fromkeys(name.strip() for name in self.notify.split(",") if name.strip()))

    @property
    def gpu_index(self) -> int | None:
        """The number of the GPU that ``device`` names; None when it names none."""
        return int(self.device.removeprefix("cuda:")) if self.device.startswith("cuda:") else None

    @model_validator(mode="after")
    def _fits_together(self) -> EngineConfig:
        if self.gpu_index is not None and self.accelerate_config:
            raise ValueError(f"device: {self.device} is one GPU, and the accelerate configuration file says which; use cuda or auto")
        if self.gpu_index is not None and self.processes != 1:
            several = f"{self.processes} processes" if self.processes else S_("every GPU")
            raise ValueError(f"device: {self.device} is one GPU, for one process; use cuda for {several}, or set processes to 1")
        if self.restart_if_unstable and (self.processes != 1 or self.accelerate_config):
            raise ValueError("restart_if_unstable: a run of several processes cannot begin again by itself; use 0")
        for name in self.trackers:
            if name not in TRACKERS:
                raise ValueError(f"report_to: there is no tracker {name[:40]!r}; there are: {', '.join(TRACKERS)}")
        return self
