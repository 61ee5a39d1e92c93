"""The run configuration: one definition for the form, the command line, the YAML file, the docs table and every check.

Each field carries its title, one help sentence (with the unit), its bounds or choices, and a level: ``basic`` fields are
shown first, ``all`` fields on demand. Nothing else in the project repeats a default or a bound.

This module imports nothing of ours, so that every layer may import it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Level = Literal["basic", "all"]


def setting(default: Any, title: str, help: str, *, level: Level = "all", unit: str = "", **bounds: Any) -> Any:
    """A pydantic field with what the form and the docs need: title, help sentence, level and unit."""
    return Field(default, title=title, description=help, json_schema_extra={"level": level, "unit": unit}, **bounds)


class Section(BaseModel):
    """Common rules: unknown keys, NaN, infinities and ``true`` as a number are refused; instances are immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)


class ModelConfig(Section):
    """Which model learns, and in which precision."""

    policy: str = setting(
        "bundled/world-policy",
        "Policy model",
        "The causal language model that PPO trains: a folder with config.json and safetensors weights, a Hugging Face hub id, "
        "or bundled/world-policy.",
        level="basic",
        min_length=1,
        max_length=4096,
    )
    revision: str = setting(
        "main", "Hub revision", "Branch, tag or commit to load when the policy is a hub id.", min_length=1, max_length=200
    )
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Precision",
        "Number format of the computation. auto: bfloat16 where the GPU supports it, float32 on a CPU.",
    )
    value_head_init: Literal["zero", "normal"] = setting(
        "zero",
        "Value head start",
        "How the value head starts: zero predicts 0 everywhere; normal draws weights with variance 1 / (hidden size + 1).",
    )


class LoraConfig(Section):
    """Low-rank adapters: train a small addition to each chosen layer instead of all weights."""

    enabled: bool = setting(
        False,
        "Train with LoRA",
        "Train low-rank adapters and keep the base weights frozen. The reference policy is then the same model with adapters off.",
        level="basic",
    )
    r: int = setting(16, "Rank r", "Rank of the low-rank update; higher learns more and costs more memory.", level="basic", ge=1, le=1024)
    alpha: float = setting(
        32.0, "Alpha", "Scale of the update: the adapter's output is multiplied by alpha / r.", level="basic", gt=0, le=4096
    )
    dropout: float = setting(
        0.0, "Dropout",
        "Dropout inside the adapters. Stored with the adapter; PPO itself always runs with dropout off, so that the first ratio is 1.",
        ge=0, lt=1,
    )  # fmt: skip
    target_modules: str = setting(
        "auto", "Target modules",
        "Names of the layers that get an adapter, separated by commas; auto takes every linear layer except the output layer.",
        min_length=1, max_length=2000,
    )  # fmt: skip


class DataConfig(Section):
    """Where the prompts come from."""

    prompts: str = setting(
        "bundled/world-prompts", "Prompts",
        "A local file with one prompt per row (.csv, .jsonl, .json lines, or .txt with one prompt a line), or bundled/world-prompts.",
        level="basic", min_length=1, max_length=4096,
    )  # fmt: skip
    column: str = setting(
        "prompt", "Prompt column", "Column (CSV) or key (JSON Lines) that holds the prompt text.", level="basic", min_length=1,
        max_length=200,
    )  # fmt: skip
    max_prompt_tokens: int = setting(
        128, "Longest prompt", "Prompts with more tokens are cut on the left, so that their end stays.", unit="tokens", ge=1, le=32768
    )
    max_prompts: int = setting(
        100_000, "Most prompts", "Only the first rows up to this number are read.", unit="prompts", ge=1, le=10_000_000
    )
    shuffle: bool = setting(True, "Shuffle", "Draw the prompts in a new random order each pass, fixed by the seed.")


class Component(Section):
    """What every reward component has."""

    name: str = setting("", "Name", "Label of this component in charts and tables; empty takes its kind.", max_length=60)
    weight: float = setting(
        1.0, "Weight", "The component's score is multiplied by this before all are summed; negative turns it into a penalty.",
        level="basic", ge=-1000, le=1000,
    )  # fmt: skip


class RewardModelReward(Component):
    """A sequence-classification model reads prompt and response and gives one number."""

    kind: Literal["reward_model"] = "reward_model"
    model: str = setting(
        "bundled/world-reward", "Reward model",
        "A sequence-classification model: a folder, a Hugging Face hub id, or bundled/world-reward. It uses its own tokenizer.",
        level="basic", min_length=1, max_length=4096,
    )  # fmt: skip
    revision: str = setting(
        "main", "Hub revision", "Branch, tag or commit to load when the model is a hub id.", min_length=1, max_length=200
    )
    label: str = setting(
        "", "Label", "Which of the model's labels is the reward, by name or number. Leave empty for a model with a single output.",
        level="basic", max_length=200,
    )  # fmt: skip
    output: Literal["logit", "probability"] = setting(
        "logit", "Output", "Take the label's raw logit, or its probability after softmax (sigmoid for a single output)."
    )
    batch_size: int = setting(64, "Batch size", "Texts scored in one forward pass.", unit="texts", ge=1, le=4096)
    max_tokens: int = setting(512, "Longest text", "Longer texts are cut on the left before scoring.", unit="tokens", ge=8, le=32768)
    append_eos: bool = setting(
        False, "Append end token", "Add the reward model's end-of-text token after a finished response, as some reward models were trained."
    )


class LengthReward(Component):
    """1 at the target length, falling linearly to 0 at a distance of ``tolerance`` and staying there."""

    kind: Literal["length"] = "length"
    target: int = setting(20, "Target length", "Response length that earns the full score.", unit="tokens", level="basic", ge=0, le=32768)
    tolerance: int = setting(
        10, "Tolerance", "Distance from the target at which the score reaches 0.", unit="tokens", level="basic", ge=1, le=32768
    )


class KeywordReward(Component):
    """Number of the given words found in the response (whole words, any case), up to a cap."""

    kind: Literal["keywords"] = "keywords"
    words: str = setting("good", "Words", "Words to look for, separated by commas.", level="basic", min_length=1, max_length=10_000)
    cap: int = setting(3, "Cap", "More hits than this earn nothing more.", unit="hits", ge=1, le=1000)


class RegexReward(Component):
    """1 when the pattern is found in the response, else 0."""

    kind: Literal["regex"] = "regex"
    pattern: str = setting(
        r"\.$", "Pattern", "Regular expression that is searched in the response.", level="basic", min_length=1, max_length=2000
    )
    timeout: float = setting(
        0.5, "Time limit", "A search that takes longer stops the run with a message, so that a costly pattern cannot hang it.",
        unit="seconds", gt=0, le=30,
    )  # fmt: skip


class RepetitionReward(Component):
    """Share of repeated n-grams in the response, 0 (none) to 1; use a negative weight to penalise it."""

    kind: Literal["repetition"] = "repetition"
    n: int = setting(3, "n-gram size", "Length of the word groups that are compared.", unit="words", level="basic", ge=1, le=20)


RewardComponent = Annotated[RewardModelReward | LengthReward | KeywordReward | RegexReward | RepetitionReward, Field(discriminator="kind")]


class RewardConfig(Section):
    """What earns reward: a weighted sum of components, and how the sum is shaped before PPO sees it."""

    components: list[RewardComponent] = setting(
        [RewardModelReward()], "Components", "The score of a response is the weighted sum of these.", level="basic", min_length=1,
        max_length=20,
    )  # fmt: skip
    scaling: Literal["none", "scale", "normalise"] = setting(
        "none",
        "Score scaling",
        "scale divides scores by their running standard deviation; normalise also subtracts their running mean.",
    )
    score_clip: float = setting(
        0.0, "Score clip", "Scores are limited to plus or minus this value after scaling; 0 does not limit.", ge=0, le=1e6
    )
    missing_eos_penalty: float = setting(
        0.0, "No-end penalty", "Subtracted from the score of a response that was cut off before its stop token.", ge=0, le=1000
    )
    gold: Literal["none", "world"] = setting(
        "none",
        "Gold scorer",
        "A second scorer that the policy never sees, drawn beside the reward to reveal over-optimisation. "
        "world: the review world's own rules.",
    )


class PPOConfig(Section):
    """The algorithm's settings, under the names the field uses."""

    steps: int = setting(
        60, "Steps", "Number of PPO steps; each samples one batch of responses and learns from it.", unit="steps", level="basic", ge=1,
        le=1_000_000,
    )  # fmt: skip
    batch_size: int = setting(64, "Batch size", "Responses sampled per step.", unit="episodes", level="basic", ge=1, le=65536)
    mini_batch_size: int = setting(
        32, "Mini-batch size", "Responses per optimizer step; must divide the batch size.", unit="episodes", level="basic", ge=1, le=65536
    )
    micro_batch_size: int = setting(
        0, "Micro-batch size",
        "Responses per forward pass; smaller needs less memory and changes nothing else. "
        "0 takes the mini-batch size; else a divisor of it.",
        unit="episodes", ge=0, le=65536,
    )  # fmt: skip
    ppo_epochs: int = setting(4, "PPO epochs", "Passes over each batch.", unit="passes", level="basic", ge=1, le=100)
    learning_rate: float = setting(1e-4, "Learning rate", "Step size of AdamW for the policy.", level="basic", gt=0, le=1)
    critic_learning_rate: float = setting(
        0.0, "Value head learning rate", "Step size for the value head; 0 takes the policy's learning rate.", ge=0, le=1
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "linear", "Schedule", "How the learning rate changes over the steps: constant, or falling to 0 linearly or as a cosine."
    )
    warmup_steps: int = setting(0, "Warm-up", "Steps over which the learning rate rises from 0 first.", unit="steps", ge=0, le=1_000_000)
    weight_decay: float = setting(0.0, "Weight decay", "AdamW weight decay.", ge=0, le=1)
    adam_epsilon: float = setting(1e-5, "Adam epsilon", "Term added to AdamW's denominator.", gt=0, le=1)
    max_grad_norm: float = setting(1.0, "Gradient clip", "Gradients are scaled down to this norm; 0 does not clip.", ge=0, le=1e6)
    kl_coef: float = setting(
        0.1, "KL coefficient", "β: how much each token pays for moving away from the reference policy.", level="basic", ge=0, le=100
    )
    kl_controller: Literal["fixed", "adaptive"] = setting(
        "fixed", "KL controller", "fixed keeps β; adaptive raises or lowers it to hold the KL near the target.", level="basic"
    )
    kl_target: float = setting(
        6.0, "KL target", "The adaptive controller holds the mean KL per response near this.", unit="nats", level="basic", gt=0, le=10_000
    )
    kl_horizon: int = setting(
        10_000, "KL horizon", "Episodes over which the adaptive controller changes β; smaller reacts faster.", unit="episodes", ge=1,
        le=10_000_000,
    )  # fmt: skip
    kl_estimator: Literal["k1", "k2", "k3", "abs", "full"] = setting(
        "k1",
        "KL estimator",
        "With d = logprob − reference logprob: k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d, abs = |d|, full = exact sum over the vocabulary.",
    )
    kl_placement: Literal["reward", "loss"] = setting(
        "reward", "KL placement", "Charge the KL in the per-token reward, or add β·KL to the loss (k2 or k3 only)."
    )
    gamma: float = setting(1.0, "Discount γ", "Weight of the next token's value; 1 does not discount.", ge=0, le=1)
    lam: float = setting(0.95, "GAE λ", "0 trusts the value estimate fully, 1 only what was really earned.", ge=0, le=1)
    cliprange: float = setting(
        0.2, "Clip range ε", "The policy gains nothing from moving a token's probability ratio further than this from 1.", level="basic",
        gt=0, lt=1,
    )  # fmt: skip
    cliprange_high: float = setting(0.0, "Upper clip range", "A different ε above 1 (clip-higher); 0 takes the same as below.", ge=0, le=10)
    dual_clip: float = setting(
        0.0, "Dual clip", "For negative advantages the loss per token stays below this times |A|; must be above 1, or 0 for none.", ge=0,
        le=1000,
    )  # fmt: skip
    cliprange_value: float = setting(
        0.2, "Value clip range", "The value may move this far from the old value per step; 0 does not clip.", ge=0, le=1000
    )
    vf_coef: float = setting(0.1, "Value coefficient", "Weight of the value loss in the total loss.", ge=0, le=100)
    entropy_coef: float = setting(
        0.0, "Entropy bonus", "Weight of the entropy bonus; keeps the policy from becoming certain too early.", ge=0, le=10
    )
    whiten_advantages: bool = setting(True, "Whiten advantages", "Shift and scale advantages to mean 0 and variance 1 over the batch.")
    whiten_rewards: bool = setting(False, "Scale rewards", "Scale per-token rewards to variance 1 over the batch; the mean stays.")
    target_kl: float = setting(
        0.0, "Early stop KL",
        "Skip the rest of a step's passes once the policy moved more than 1.5 times this (approximate KL); 0 never stops.",
        unit="nats", ge=0, le=1000,
    )  # fmt: skip
    ratio_threshold: float = setting(
        10.0, "Ratio threshold", "A mini-batch whose mean ratio exceeds this is skipped; 0 never skips.", ge=0, le=1e6
    )
    critic_warmup_steps: int = setting(
        0, "Critic warm-up", "First steps in which only the value head learns.", unit="steps", ge=0, le=1_000_000
    )

    @model_validator(mode="after")
    def _fits_together(self) -> PPOConfig:
        if self.mini_batch_size > self.batch_size:
            raise ValueError(
                f"mini_batch_size: {self.mini_batch_size} is larger than batch_size {self.batch_size}; use at most the batch size"
            )
        if self.batch_size % self.mini_batch_size:
            raise ValueError(f"mini_batch_size: {self.mini_batch_size} does not divide batch_size {self.batch_size}; use a divisor of it")
        if self.micro_batch_size and self.mini_batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size: {self.micro_batch_size} does not divide mini_batch_size {self.mini_batch_size}; use a divisor of it"
            )
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(f"dual_clip: {self.dual_clip} must be above 1, or 0 for none")
        if self.kl_placement == "loss" and self.kl_estimator not in ("k2", "k3"):
            raise ValueError(f"kl_estimator: {self.kl_estimator} cannot be used in the loss; use k2 or k3 with kl_placement loss")
        if self.kl_controller == "adaptive" and self.kl_horizon <= 0.2 * self.batch_size:  # β would reach 0 in one step
            shortest = self.batch_size // 5 + 1
            raise ValueError(f"kl_horizon: {self.kl_horizon} is too short for batches of {self.batch_size}; use at least {shortest}")
        return self


class GenerationConfig(Section):
    """How responses are sampled."""

    response_length: int = setting(32, "Response length", "Most tokens the policy may write.", unit="tokens", level="basic", ge=1, le=8192)
    response_length_min: int = setting(
        0, "Shortest limit", "When above 0, each episode's limit is drawn between this and the response length.", unit="tokens", ge=0,
        le=8192,
    )  # fmt: skip
    temperature: float = setting(
        1.0, "Temperature", "Logits are divided by this, in sampling and in every log-probability.", level="basic", gt=0, le=10
    )
    top_k: int = setting(
        0, "Top-k", "Sample from the k likeliest tokens only; 0 keeps all. Truncation makes the KL estimate too low.", ge=0, le=1_000_000
    )
    top_p: float = setting(1.0, "Top-p", "Sample from the smallest set of tokens with this much probability; 1 keeps all.", gt=0, le=1)
    stop_token: str = setting(
        "eos", "Stop token", "What ends a response: eos (the tokenizer's end token), none, or a token id.", pattern=r"^(eos|none|\d{1,7})$"
    )

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
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Device", "auto takes the GPU when there is one.", level="basic")
    threads: int = setting(0, "CPU threads", "Threads for computation on the CPU; 0 lets PyTorch choose.", ge=0, le=1024)
    checkpoint_every: int = setting(
        20, "Checkpoint every", "A checkpoint is written after this many steps, and always at the end; 0 only at the end.", unit="steps",
        ge=0, le=1_000_000,
    )  # fmt: skip
    keep_checkpoints: int = setting(2, "Keep checkpoints", "Older checkpoints beyond this number are removed.", ge=1, le=10_000)
    record_samples: int = setting(
        16, "Recorded responses", "Responses per step whose every token is kept for the inspector.", unit="responses", ge=1, le=4096
    )
    watch_prompts: int = setting(
        6, "Watched prompts", "Fixed prompts that are answered again and again, to compare with the starting policy.", unit="prompts", ge=0,
        le=256,
    )  # fmt: skip
    watch_every: int = setting(5, "Watch every", "Steps between two answers to the watched prompts.", unit="steps", ge=1, le=1_000_000)
    non_finite: Literal["stop", "skip"] = setting(
        "stop", "On NaN or infinity", "stop ends the run with the cause; skip leaves that update out and goes on, at most 10 times."
    )


class RunConfig(Section):
    """Everything a run needs. Saved as ``config.yaml`` in the run folder."""

    name: str = setting("", "Run name", "A name for people; empty takes the recipe's.", level="basic", max_length=120)
    recipe: str = setting("", "Recipe", "The recipe this configuration started from.", max_length=120)
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    ppo: PPOConfig = PPOConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()


SECTIONS = ("model", "lora", "data", "reward", "ppo", "generation", "engine")
