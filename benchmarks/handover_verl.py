"""Reads overrides as verl does before a training, and loads the reward function. Runs in verl's environment, without ours."""

import sys
from unittest.mock import MagicMock

from hydra import compose, initialize_config_module
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config


def main() -> None:
    sys.modules["verl.workers.rollout.vllm_rollout.utils"] = MagicMock()  # asks vLLM, which needs a GPU, for the next rank that it serves
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=sys.argv[1:])
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    score = get_custom_reward_fn(config)
    if score is not None:
        print("reward:", score(data_source="", solution_str="It is 4", ground_truth="4", extra_info={"prompt": "2 + 2"}))


if __name__ == "__main__":
    main()
