"""Reads overrides as verl does before a training, and loads prompts and reward function. Runs in verl's environment, without ours."""

import sys
from unittest.mock import MagicMock

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset


def first_prompt(config: DictConfig) -> list[int]:
    """What the policy would read, by verl's own dataset and as its agent loop writes prompts."""
    model = config.actor_rollout_ref.model
    tokenizer = AutoTokenizer.from_pretrained(model.path)
    if model.custom_chat_template is not None:
        tokenizer.chat_template = model.custom_chat_template
    rows = RLHFDataset([config.data.train_files], tokenizer, config.data)
    return tokenizer.apply_chat_template(rows[0]["raw_prompt"], add_generation_prompt=True, tokenize=True, return_dict=False)


def main() -> None:
    sys.modules["verl.workers.rollout.vllm_rollout.utils"] = MagicMock()  # asks vLLM, which needs a GPU, for the next rank that it serves
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=sys.argv[1:])
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    print("first prompt:", first_prompt(config))
    score = get_custom_reward_fn(config)
    if score is not None:
        print("reward:", score(data_source="", solution_str="It is 4", ground_truth="4", extra_info={"prompt": "2 + 2"}))


if __name__ == "__main__":
    main()
