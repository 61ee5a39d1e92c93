"""Forty questions that a reader of TRL's PPO asks: each is answered in one scene, soon, and beside a live number.

A row is the question, the scene, a number of the scene that the answer shows, and words of the answer.
"""

from __future__ import annotations

import re

import pytest
import torch

from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.pages.rewards import whitened_there
from rlhf_studio.lessons.parts.reference_memory import weights_of

MOST_WORDS = 330
"""Words up to the answer, the controls' names and the other answers of a question included: a minute and a half for a slow reader."""
QUESTIONS = [
    (
        "Why do policy and critic sit in one PolicyAndValueWrapper?",
        "policy_and_value/where_the_trunk_is",
        "prefix",
        "one call prepares and wraps",
    ),
    ("What is getattr(model, base_model_prefix) for?", "policy_and_value/where_the_trunk_is", "prefix", "carries that name"),
    ("Does the wrapper run one backbone or two?", "from_trl/wrapper", "same", "one inside the policy, one inside the critic"),
    ("What does lm_backbone mean in get_reward?", "policy_and_value/where_the_trunk_is", "of_values", "applies `score` to its states"),
    ("What happens in the PEFT block?", "reference/after_sft", "policy_learns", "by `get_peft_model`"),
    ("Why is ref_model None with PEFT?", "reference/switch", "ref_model", "no second model is kept"),
    ("What does null_ref_context do with one adapter?", "reference/switch", "is_base", "It is switched off, and what is left"),
    ("What does null_ref_context do with two adapters?", "reference/switch", "restored", "`ref_adapter_name` in TRL"),
    ("What is set up before the loop?", "before_the_loop/set_up", "in_optimizer", "an endless stream of prompts"),
    ("What is repeat_generator?", "before_the_loop/endless", "there", "`repeat_generator`"),
    ("How many optimizer steps does a batch give?", "before_the_loop/one_batch", "optimizer_steps", "Passes times minibatches"),
    ("What becomes of gradient_accumulation_steps?", "from_trl/one_batch", "made", "So several minibatches share a step"),
    ("How do total_episodes become steps?", "before_the_loop/whole_run", "steps", "A batch is never cut"),
    (
        "Why are query lengths drawn (LengthSampler)?",
        "query_and_response/drawn_lengths",
        "different",
        "practise starting at one place only",
    ),
    ("What does stop_token change?", "query_and_response/only_the_response", "slots", "`stop_token` is `null` by default"),
    (
        "Why is padding on the left, with position ids?",
        "logprobs/left_padding",
        "error",
        "so that every response begins in the same column",
    ),
    ("Why logits[:, context_length - 1 : -1]?", "logprobs/shift", "of_token", "is read one place earlier"),
    ("What is INVALID_LOGPROB?", "logprobs/under_mask", "marker", "`INVALID_LOGPROB`"),
    ("Why are query and padding masked?", "logprobs/which_tokens", "foreign", "for which it has no credit and no blame"),
    ("Why are logits divided by the temperature everywhere?", "sampling/two_temperatures", "ratio", "`temperature + 1e-7`"),
    ("Where does a reward model's score come from?", "reward_model/where_read", "truth", "only one place has read the whole response"),
    ("What if the reward model's head is new?", "reward_model/new_head", "accuracy", "drawn at random"),
    ("Where does the score enter the rewards?", "rewards/last_token", "total", "only then does the text exist"),
    ("Why is my KL negative?", "rewards/cut", "mean_k1", "as long as the dice follow the policy that is scored"),
    ("k1 or k3?", "rewards/dice", "bias_k3", "Which one jumps less"),
    ("When does beta rise, and by how much at most?", "rewards/thermostat", "most", "rises while the KL is above the target"),
    ("What does whiten_rewards do to the mean?", "rewards/scaling", "mean_plain", "TRL's `whiten_rewards`"),
    ("Why are advantages computed backwards?", "gae/right_to_left", "found", "each advantage needs the one to its right"),
    ("What do gamma and lambda do?", "gae/credit", "reach", "changes the advantage of each token before it"),
    ("Why are advantages normalised?", "gae/whitening", "stretch", "the learning rate is fixed"),
    ("Why are values detached?", "gae/constants", "loss_after", "The critic is told to expect less"),
    ("How good is an advantage, as a guess?", "gae/dice", "worth", "one noisy guess"),
    ("Why must the first ratio of a batch be one (val/ratio)?", "clip/ratio", "old_against_old", "`val/ratio`"),
    ("What is the gradient at ratio 1.3 with A < 0?", "clip/dead_zones", "gradient", "The slope of its loss along its log-probability"),
    ("Why does the value loss take a maximum?", "clip/value_clip", "smaller", "is a gain, this is an error"),
    ("What is the total loss made of?", "clip/one_step", "total", "has only the first two terms"),
    ("What is clipfrac?", "clip/one_step", "clipped", "`policy/clipfrac_avg`"),
    ("Does one token's step change other texts?", "clip/under_microscope", "then", "used at others, for good and ill"),
    ("What is approxkl, beside objective/kl?", "from_trl/metrics", "approxkl", "is not this KL"),
    ("What does generate_completions do?", "from_trl/around", "written", "answers prompts that are not trained on"),
]

LATER = [
    ("What is val/ratio divided by?", "from_trl/one_batch", "logged_ratio", "the others stay zero"),
    ("What do several processes do to the batch?", "from_trl/one_batch", "batch_of_all", "Processes multiply the batch"),
    ("What is saved?", "from_trl/around", "of_critic", "saves the policy alone, without the value model"),
    ("Where are win rates?", "from_trl/around", "of_policy", "(tab:evaluate)"),
    ("What is reward hacking?", "what_goes_wrong/two_curves", "lost", "reward hacking, or over-optimisation"),
    ("Which clip fractions and approximate KLs are healthy?", "what_goes_wrong/more_passes", "clip_high", "What is healthy?"),
    ("What does a longer response_length cost?", "before_the_loop/doubled", "trl_tokens", "at TRL's default `response_length`"),
    ("How much memory do the four models take?", "reference/memory", "all_four", "Policy, reference, critic and reward model"),
    ("Which top_k, top_p and min_length does TRL pass?", "sampling/truncation", "cut", "`top_k=0`, `top_p=1.0`"),
    ("With which tokenizer does the reward model read?", "reward_model/where_read", "own_tokens", "own tokenizer"),
    ("Why is whiten_rewards off by default?", "rewards/scaling", "divisor", "It is off by default"),
    ("Which variance of the ratio is healthy?", "clip/one_step", "ratio_var", "in a healthy run it is far below"),
    ("What happens with ZeRO-3?", "reference/memory", "part", "with `ds3_gather_for_generation` off it gathers layer by layer"),
    ("How do num_train_epochs and the schedule fit total_episodes?", "before_the_loop/whole_run", "half", "moves once per batch"),
    ("What does whiten_rewards do to padding?", "rewards/scaling", "in_padding", "sets it to zero after whitening"),
]
"""Questions that these forty led to, answered in the same way."""


def scene_source(lesson: str, scene: str) -> str:
    """The scene's part of the English text, in one line."""
    source = shelf.file_of(lesson, "en.md").read_text(encoding="utf-8")
    found = re.search(rf"^:::scene {scene}$(.*?)(?=^:::scene |^:::words|\Z)", source, re.MULTILINE | re.DOTALL)
    assert found, f"{lesson} has no scene {scene}"
    return " ".join(found[1].split())


def test_there_are_forty_different_questions() -> None:
    assert len({question for question, *_ in QUESTIONS}) == 40


@pytest.mark.parametrize(("question", "place", "number", "words"), [*QUESTIONS, *LATER], ids=[row[0] for row in [*QUESTIONS, *LATER]])
def test_each_question_is_answered_soon_beside_a_number(question: str, place: str, number: str, words: str) -> None:
    lesson, _, scene = place.partition("/")
    source = scene_source(lesson, scene)
    assert words in source, f"{question}: {place} does not say {words!r}"
    assert len(source[: source.index(words)].split()) <= MOST_WORDS, f"{question}: the answer comes late"
    assert number in {name for name, _ in answers.slots_of(lesson, scene, "en").values()}, f"{question}: {place} does not show {number}"


def test_a_model_of_seven_billion_has_as_many_weights_as_its_publisher_says() -> None:
    assert weights_of("llama_7b") == 6_738_415_616


def test_whitened_padding_is_that_of_trl() -> None:
    """TRL's own function, with and without the line that clears padding afterwards."""
    trainer = pytest.importorskip("trl.experimental.ppo.ppo_trainer", reason="trl 1.12 is not installed")
    rewards, mask = torch.tensor([[0.3, 1.2, 0.0], [-0.4, 0.9, 2.0]]), torch.tensor([[True, True, False], [True] * 3])
    theirs = trainer.masked_whiten(rewards, mask, shift_mean=False)
    assert torch.allclose(whitened_there(rewards, mask), theirs)
    assert theirs[0, 2] != 0
