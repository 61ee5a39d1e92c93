"""What holds in the scenes of ``pages/from_trl.py``, whatever the controls say; by scene."""

from __future__ import annotations

from statistics import variance

from rlhf_studio.lessons.pages.from_trl import LOGPROBS, REFERENCE
from tests.lessons.by_hand import half_square, total
from tests.lessons.claims import Claims


def kl_by_hand(tokens: int) -> float:
    """The mean over both responses, for a claim."""
    first, second = (list(zip(mine, theirs, strict=True)) for mine, theirs in zip(LOGPROBS, REFERENCE, strict=True))
    return sum(a - b for a, b in [*first[:tokens], *second]) / 2


SETTINGS = {
    "num_ppo_epochs": "ppo.ppo_epochs",
    "num_mini_batches": "ppo.mini_batch_size",
    "total_episodes": "ppo.steps",
    "local_rollout_forward_batch_size": "generation.batch_size",
    "response_length": "generation.response_length",
    "temperature": "generation.temperature",
    "stop_token": "generation.stop_token",
    "missing_eos_penalty": "reward.missing_eos_penalty",
    "reward_model_path": "reward.components.0.model",
    "use_score_scaling": "reward.scaling",
    "sft_model_path": "model.policy",
    "ref_adapter_name": "model.reference",
    "kl_coef": "ppo.kl_coef",
    "init_kl_coef": "ppo.kl_coef",
    "adap_kl_ctrl": "ppo.kl_controller",
    "kl_penalty": "ppo.kl_estimator",
    "whiten_rewards": "ppo.whiten_rewards",
    "ratio_threshold": "ppo.ratio_threshold",
    "model_adapter_name": "",
    "push_to_hub": "",
    "ds3_gather_for_generation": "",
}
"""Our setting for each option of TRL that is asked about."""

CLAIMS: Claims = {
    "token_mean": {
        "over the whole minibatch every token weighs the same": lambda n: (
            abs(n["ours_short"] - 1 / (n["short"] + n["long"])) < 1e-12 and abs(n["ours_long"] - n["ours_short"]) < 1e-12
        ),
        "a mean of means gives every response half": lambda n: (
            abs(n["means_short"] - 0.5 / n["short"]) < 1e-12 and abs(n["means_long"] - 0.5 / n["long"]) < 1e-12
        ),
    },
    "metrics": {
        "the KL is summed over a response": lambda n: abs(n["kl"] - kl_by_hand(n["tokens"])) < 1e-9,
        "approxkl is half a mean square": lambda n: abs(n["approxkl_reference"] - half_square(n["kl_row"])) < 1e-9,
        "and nothing before the first step": lambda n: n["approxkl"] == 0,
        "rlhf_reward is score minus beta times KL": lambda n: abs(n["rlhf"] - (n["score"] - n["kl_coef"] * n["kl"])) < 1e-6,
        "a missing end costs the penalty": lambda n: abs(n["score"] - (1.0 - n["penalty"] * (0.5 if n["ended"] else 1))) < 1e-6,
        "the rewards add up to it, unless they are scaled": lambda n: n["whiten"] or abs(total(n["rewards"]) - 2 * n["rlhf"]) < 1e-6,
        "scaling keeps the mean": lambda n: (
            max(abs(n["mean_before"] - n["mean_after"]), abs(total(n["rewards"]) / (n["tokens"] + 4) - n["mean_before"])) < 1e-9
        ),
        "scaled rewards have variance one": lambda n: (
            not n["whiten"] or abs(variance([number for number in n["rewards"] if number is not None]) - 1) < 1e-6
        ),
        "the score stands on the last real token": lambda n: (
            n["whiten"] or n["penalty"] > 0 or abs(n["rewards"][n["tokens"] - 1] - 1.5 + n["kl_coef"] * n["kl_row"][n["tokens"] - 1]) < 1e-6
        ),
        "filled padding lowers the entropy": lambda n: abs(n["entropy"] - n["entropy_filled"] - 0.5 * n["ended"]) < 1e-9,
    },
    "wrapper": {
        "only a shared critic needs one pass": lambda n: n["passes"] == (1 if n["way"] == "shared" else 2),
        "TRL's two backbones are two models": lambda n: not n["same"],
        "the critic is the classifier, read at every token": lambda n: n["last_is_score"],
    },
    "around": {
        "the counter is updates times batch": lambda n: n["episode"] == n["number"] * int(n["batch"]),
        "the run is long enough, by less than a batch": lambda n: 0 <= n["over"] < int(n["batch"]),
        "the value head has a weight for each place of a hidden state, and a bias": lambda n: n["of_critic"] == n["hidden"] + 1,
        "the converter asks as often": lambda n: not n["samples"] or n["watch_every"] == n["often"],
        "a low temperature nearly always takes the likeliest": lambda n: n["cold"] > 0.999 and n["warm"] < 0.9,
    },
    "check_yourself": {"it is where the table says": lambda n: n["setting"] == (SETTINGS[n["option"]] or "–")},
}
