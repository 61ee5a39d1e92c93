"""TRL's names for the same ideas: batches, metrics, the wrapper of policy and critic, and the code around the loop."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import EngineConfig, RewardConfig, RunConfig
from rlhf_studio.engine.models.adapters import adapter_weights
from rlhf_studio.engine.models.critic import Trunk, make_value_head
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.scorer import shaped_scores
from rlhf_studio.lessons.kit import Bar, Box, Choice, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, flow, ledger, line
from rlhf_studio.lessons.parts import trl_batch
from rlhf_studio.lessons.parts.trl_batch import converted
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.small_models import FAMILIES, TwoModels, language_model_and_classifier, response_logits, sentence, tiny_model
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.masking import masked_mean, masked_select
from rlhf_studio.ppo.rewards import RunningMoments, shape_rewards
from rlhf_studio.trl.table import options as table_options

NUMBER = 15


# --- means of means ----------------------------------------------------------------------------------------------------------------


def token_mean(short: int, long: int) -> Numbers:
    """The weight of a token in the gradient, with one response in each of two micro-batches."""
    lengths = [int(short), int(long)]
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    new, ones = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True), torch.ones(mask.shape, dtype=torch.float64)
    parts = [policy_loss(new[row : row + 1], 0 * ones[:1], ones[:1], mask[row : row + 1], 0.2) for row in range(2)]
    tokens = sum(int(part.tokens) for part in parts)
    (expected,) = torch.autograd.grad(parts[0].loss_sum / tokens + parts[1].loss_sum / tokens, new, retain_graph=True)
    (each,) = torch.autograd.grad((parts[0].loss_sum / parts[0].tokens + parts[1].loss_sum / parts[1].tokens) / 2, new)
    return {
        "ours_short": -float(expected[0, 0]),
        "ours_long": -float(expected[1, 0]),
        "means_short": -float(each[0, 0]),
        "means_long": -float(each[1, 0]),
        "times": float(each[0, 0] / each[1, 0]),
        "heavier": Word("short" if lengths[0] < lengths[1] else "long" if lengths[0] > lengths[1] else "equal"),
    }


def draw_weights(n: Numbers) -> Picture:
    items = [Bar(Word("short"), [n["ours_short"], n["means_short"]]), Bar(Word("long"), [n["ours_long"], n["means_long"]])]
    return bars(items, [Word("whole_minibatch"), Word("mean_of_means")], label=Word("weight"), low=0, high=0.5, digits=3)


# --- metrics -----------------------------------------------------------------------------------------------------------------------

LOGPROBS, REFERENCE = ([-0.5, -1.0, -0.4, -0.9], [-0.7, -1.2, -0.3, -0.6]), ([-1.3, -0.8, -0.6, -1.4], [-0.5, -1.5, -0.9, -0.6])
SCORES = [1.5, 0.5]
SENTINEL = 1.0  # what TRL writes into padding in place of a log-probability


def metrics(kl_coef: float, penalty: float, ended: bool, whiten: bool) -> Numbers:
    """Two responses of at most four tokens, and what TRL's names say. The first may end after three; the second is cut off."""
    mask = torch.tensor([[True, True, True, not ended], [True] * 4])
    logprobs, ref_logprobs, raw = (torch.tensor(rows, dtype=torch.float64) for rows in (LOGPROBS, REFERENCE, SCORES))
    words = ["superb", ".", "<end>" if ended else "the", "–" if ended else "film", "fine", "film", "is", "fine"]
    settings = RewardConfig.model_validate({"components": [{"kind": "length"}], "missing_eos_penalty": penalty})
    episodes = Episodes([""] * 2, [""] * 2, [ended, False], mask.sum(dim=1).tolist())
    scores = shaped_scores(raw, settings, RunningMoments(), episodes)
    kl = kl_per_token(logprobs, ref_logprobs, "k1")
    plain = shape_rewards(kl, scores, mask, kl_coef)
    rewards = shape_rewards(kl, scores, mask, kl_coef, unit_variance=whiten)
    charged = masked_select(-kl_coef * kl, mask)
    with_padding = charged.clone()
    with_padding[:, 3] += scores  # TRL: one slot after the last token where there is one, else on the last token
    filled = torch.where(mask, logprobs, SENTINEL)
    return {
        "words": words,
        "tokens": int(mask[0].sum()),
        "score": float(scores.mean()),
        "kl_row": _with_gaps(kl, mask),
        "rewards": _with_gaps(rewards, mask),
        "there": with_padding.flatten().tolist(),
        "kl": float(masked_select(kl, mask).sum(dim=1).mean()),
        "non_score": float(charged.sum(dim=1).mean()),
        "rlhf": float((charged.sum(dim=1) + scores).mean()),
        "entropy": float(masked_select(-logprobs, mask).sum(dim=1).mean()),
        "entropy_filled": float((-filled).sum(dim=1).mean()),
        "approxkl": float(masked_mean(kl_per_token(logprobs, logprobs, "k2"), mask)),
        "approxkl_reference": float(masked_mean(kl_per_token(logprobs, ref_logprobs, "k2"), mask)),
        "mean_before": float(masked_mean(plain, mask)),
        "mean_after": float(masked_mean(rewards, mask)),
        "place": Word("after_end" if ended else "on_end"),
    }


def _with_gaps(rows: Tensor, mask: Tensor) -> list[float | None]:
    return [value if real else None for value, real in zip(rows.flatten().tolist(), mask.flatten().tolist(), strict=True)]


def draw_rewards(n: Numbers) -> Picture:
    rows: dict[str, list[float | None]] = {"objective/kl": n["kl_row"], Word("reward_here"): n["rewards"], Word("reward_there"): n["there"]}
    return ledger(n["words"], rows, result=Word("reward_here"))


# --- two backbones ------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def wrapper(family: str, way: str) -> Numbers:
    """Which backbones one forward pass runs: counted while it runs."""
    policy, value_model = language_model_and_classifier(family)
    batch = sentence([1, 2, 3], [4, 5])
    ids = torch.cat([batch.prompt_ids, batch.response_ids], dim=1)
    both, head = TwoModels(policy, value_model), make_value_head(8, "normal", 0)
    ran: list[str] = []
    watched = {"policy": policy.base_model, "critic": both.critic_backbone}
    hooks = [module.register_forward_hook(lambda *_, name=name: ran.append(name)) for name, module in watched.items()]
    try:
        if way == "trl":
            values = both(ids)[1]
        else:
            trunk = Trunk(both.critic_backbone.eval()) if way == "separate" else None
            values = Policy(policy, head, trunk).logits_and_values(batch)[1]
    finally:
        for hook in hooks:
            hook.remove()
    score = value_model(input_ids=ids).logits
    return {
        "ran": ran,
        "passes": len(ran),
        "backbones": Word("two" if len(ran) == 2 else "one"),
        "prefix": value_model.base_model_prefix,
        "kind": type(both.critic_backbone).__name__,
        "classifier": type(value_model).__name__,
        "same": both.critic_backbone is policy.base_model,
        "values": int(values.numel()),
        "last_is_score": way != "trl" or bool(torch.allclose(values[0, -1], score[0], atol=1e-6)),
    }


def draw_wrapper(n: Numbers) -> Picture:
    critic = "critic" in n["ran"]
    boxes = [
        Box(Word("tokens"), 0, 0, to=[Word("policy_backbone"), Word("critic_backbone")] if critic else [Word("policy_backbone")]),
        Box(Word("policy_backbone"), 1, 0, tone="policy", to=[Word("logits")] if critic else [Word("logits"), Word("values")]),
        Box(Word("logits"), 2, 0, tone="policy"),
        Box(Word("values"), 2, 1, tone="value"),
    ]
    return flow(boxes + ([Box(Word("critic_backbone"), 1, 1, tone="value", to=[Word("values")])] if critic else []))


# --- around the loop ----------------------------------------------------------------------------------------------------------------


@cache
def in_a_checkpoint(run: LessonRun) -> tuple[int, int, int]:
    """Numbers in the adapters of the lesson run's policy and in its value head; and the width of a hidden state."""
    policy = run.policy(run.steps)
    assert policy.value_head is not None
    model: Any = policy.model
    adapters = adapter_weights(model)
    counts = (sum(x.numel() for x in tensors) for tensors in (adapters.values(), policy.value_head.parameters()))
    return next(counts), next(counts), int(model.config.hidden_size)


@torch.no_grad()
def around(run: LessonRun, episodes: int, batch: str, samples: int, update: int) -> Numbers:
    """The episode counter, when samples are written, how they are drawn, how prompts are padded, and what is saved."""
    size, number = int(batch), int(update)
    ours = converted(per_device_train_batch_size=size, total_episodes=int(episodes), num_sample_generations=int(samples))
    steps = ours["ppo"]["steps"]
    often = max(1, steps // int(samples)) if samples else 0
    written = [step for step in range(1, steps + 1) if often and (step - 1) % often == 0]
    logits = response_logits(ResponseModel(tiny_model()), sentence([1, 2, 3], [6]))
    cold, warm = (float(log_distribution(logits, heat).exp().max()) for heat in (0.01, 0.7))
    ids, mask = pad_left([[1, 2, 3], [2], [1, 2]], 0)
    of_policy, of_critic, hidden = in_a_checkpoint(run)
    return {
        "of_policy": of_policy,
        "of_critic": of_critic,
        "of_both": of_policy + of_critic,
        "hidden": hidden,
        "steps": steps,
        "number": min(number, steps),
        "episode": min(number, steps) * size,
        "over": steps * size - int(episodes),
        "often": often,
        "at": written,
        "written": len(written),
        "writes": Word("writes" if min(number, steps) in written else "writes_nothing"),
        "watch_every": ours["engine"].get("watch_every", 0),
        "prompts": ours["engine"].get("watch_prompts", EngineConfig.model_fields["watch_prompts"].default),
        "cold": cold,
        "warm": warm,
        "longest": ids.shape[1],
        "padding": int((~mask).sum()),
    }


def draw_around(n: Numbers) -> Picture:
    numbers, size = [float(number) for number in range(1, n["steps"] + 1)], int(n["batch"])
    curve = Series(Word("episode"), numbers, [number * size for number in numbers], tone="policy")
    written = Series(Word("writes"), [float(number) for number in n["at"]], [float(number * size) for number in n["at"]], dots=True)
    x_range, y_range = (0.0, float(n["steps"])), (0.0, float(n["steps"] * size))
    return line([curve, written], x=Word("update"), y=Word("episode"), at=float(n["number"]), x_range=x_range, y_range=y_range)


# --- check yourself ------------------------------------------------------------------------------------------------------------------

ASKED = (
    "num_ppo_epochs",
    "num_mini_batches",
    "total_episodes",
    "local_rollout_forward_batch_size",
    "response_length",
    "temperature",
    "stop_token",
    "missing_eos_penalty",
    "reward_model_path",
    "use_score_scaling",
    "sft_model_path",
    "ref_adapter_name",
    "kl_coef",
    "init_kl_coef",
    "adap_kl_ctrl",
    "kl_penalty",
    "whiten_rewards",
    "ratio_threshold",
    "model_adapter_name",
    "push_to_hub",
    "ds3_gather_for_generation",
)


def check_yourself(option: str) -> Numbers:
    """An option of TRL, and where it is here, from the table that the converter and the documentation use."""
    rows = [(row, release) for section, release in (("experimental", "1.12"), ("classic", "0.11")) for row in table_options(section)]
    row, release = next((row, release) for row, release in rows if row.name == option)
    return {
        "release": release,
        "default": json.dumps(row.default),
        "setting": row.ours[0] if row.ours else "–",
        "our_default": json.dumps(_default(row.ours[0])) if row.ours and "components" not in row.ours[0] else "–",
        "note": row.note,
        "area": Word(f"in_{row.ours[0].split('.')[0]}" if row.ours else "nowhere"),
    }


def _default(setting: str) -> Any:
    section, name = setting.split(".")
    kind: Any = RunConfig.model_fields[section].annotation
    return kind.model_fields[name].default


SCENES = (
    trl_batch.SCENE,
    Scene(
        "token_mean",
        token_mean,
        controls=(Slider("short", 1, 20, 1, start=4), Slider("long", 1, 20, 1, start=16)),
        pictures={"weights": draw_weights},
    ),
    Scene(
        "metrics",
        metrics,
        controls=(
            Slider("kl_coef", 0, 0.5, 0.05, start=0.1),
            Slider("penalty", 0, 2, 0.25, start=1),
            Toggle("ended", start=True),
            Toggle("whiten"),
        ),
        pictures={"rewards": draw_rewards},
    ),
    Scene(
        "wrapper",
        wrapper,
        controls=(Choice("family", list(FAMILIES), start="gpt2"), Choice("way", ["trl", "shared", "separate"], start="trl")),
        pictures={"passes": draw_wrapper},
    ),
    Scene(
        "around",
        around,
        needs=("run",),
        controls=(
            Slider("episodes", 512, 4096, 128, start=2048),
            Choice("batch", ["32", "64", "128"], start="64"),
            Slider("samples", 0, 20, 1, start=10),
            Slider("update", 1, 40, 1, start=4),
        ),
        pictures={"counter": draw_around},
    ),
    Scene("check_yourself", check_yourself, controls=(Choice("option", ASKED, start="kl_coef"),)),
)
