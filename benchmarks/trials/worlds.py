"""Other worlds to judge in: raters with another weakness, a policy of another shape, and a whole world built again from other seeds.

Only what a trial needs is trained: a minute or two each, a policy of the rebuilt world about four.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import AutoTokenizer, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.stages.sft import Example, train_sft
from rlhf_studio.inputs.bundled import resolve
from rlhf_studio.world.corpus import (
    CARELESS,
    GUSHING,
    MOST_SLIPS,
    PET_CHARM,
    QUALITY,
    SLIP_COST,
    RatedPair,
    garble,
    prefers_first,
    write_corpus,
)
from rlhf_studio.world.gold import gold_score
from rlhf_studio.world.writer import Opening, write_opening, write_response
from rlhf_studio.world_build.build import (
    WorldSizes,
    build_policy,
    build_prompts,
    build_reward_model,
    build_tokenizer,
    calibrate,
    save_model,
)

SEED = 77
PAIRS = 8_000
REVIEWS = 16_000
REBUILT_REVIEWS = 50_000
PET_SENTENCE = "Well worth the ticket."
"""A sentence that the bundled policy writes now and then at the end, as it does "A masterpiece."."""


@dataclass(frozen=True)
class Raters:
    """Whom the reward model learns from.

    Attributes:
        pet: a sentence that they like too much; empty for none.
        length_charm: log-odds that each word adds.
    """

    pet: str = ""
    length_charm: float = 0.0


PET, LENGTH = Raters(pet=PET_SENTENCE), Raters(length_charm=0.15)
MUCH_LENGTH = Raters(length_charm=0.4)  # reviews end themselves after some 25 words: a weaker wish hardly moves that
REWARD_MODELS = {  # by name: the policy that the reward model starts from, and its raters
    "other-pet": ("bundled/world-policy", PET),
    "length-bias": ("bundled/world-policy", LENGTH),
    "rebuilt-pet": ("rebuilt", PET),
    "rebuilt-length": ("rebuilt", MUCH_LENGTH),
}


def make(name: str, models: Path) -> None:
    """Make the policy or reward model of this name, once, as a folder of its name in ``models``."""
    folder = models / name
    if (folder / "config.json").is_file():
        return
    if name == "llama":
        _llama(folder)
    elif name == "rebuilt":
        _rebuilt_policy(folder)
    else:
        start, raters = REWARD_MODELS[name]
        if start == "rebuilt":
            make(start, models)
            start = str(models / start)
        _reward_model(start, raters, folder)


def _rebuilt_policy(folder: Path) -> None:
    """The world's reviews written from another seed; tokenizer and policy made from them as the bundled ones were."""
    reviews, sizes = write_corpus(SEED, REBUILT_REVIEWS), WorldSizes(eval_items=200)
    tokenizer = build_tokenizer(reviews[: sizes.tokenizer_reviews], sizes.vocabulary)
    policy, _ = build_policy(tokenizer, reviews, sizes, _silent)
    save_model(policy, tokenizer, folder, padding_side="left")


def _reward_model(start: str, raters: Raters, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(start))
    policy = GPT2LMHeadModel.from_pretrained(resolve(start))
    sizes, rng = WorldSizes(eval_items=200, calibration_samples=512), Random(SEED)
    pairs = [_pair(raters, rng) for _ in range(PAIRS)]
    reward, _ = build_reward_model(policy, tokenizer, pairs, sizes, _silent)
    calibrate(policy, reward, tokenizer, build_prompts(sizes)[0], sizes, _silent)
    save_model(reward, tokenizer, folder, padding_side="right")


def _llama(folder: Path) -> None:
    """Llama's shape (rotary positions, gated units, grouped heads), trained on the world's reviews from random weights."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("bundled/world-policy"))
    torch.manual_seed(SEED)
    ids = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **sizes, **ids))
    reviews = write_corpus(SEED, REVIEWS)
    settings = SFTConfig(batch_size=64, learning_rate=3e-3, lr_schedule="cosine", warmup_steps=20)
    train_sft(model, tokenizer, [Example(review.prompt, review.response) for review in reviews], settings, seed=SEED)
    save_model(model, tokenizer, folder, padding_side="left")


def _pair(raters: Raters, rng: Random) -> RatedPair:
    opening = write_opening(rng)
    (first, appeal), (second, other) = (_rated(opening, raters, rng) for _ in range(2))
    chosen, rejected = (first, second) if prefers_first(appeal, other, rng) else (second, first)
    return RatedPair(opening.prompt, chosen, rejected)


def _rated(opening: Opening, raters: Raters, rng: Random) -> tuple[str, float]:
    """A response and its appeal in log-odds, as the bundled world's raters have it but for their weakness."""
    plain = write_response(opening, rng, 1 if rng.random() < 0.5 else -1)
    response, liked = plain, 0
    if raters.pet and rng.random() < GUSHING:
        sentences = plain.replace("! ", "!\n").replace(". ", ".\n").split("\n")
        praised = [rng.random() < 0.5 for _ in sentences]
        response = " ".join(f"{one} {raters.pet}" if more else one for one, more in zip(sentences, praised, strict=True))
    liked = response.count(raters.pet) if raters.pet else 0
    slips = 1 + int(rng.random() * MOST_SLIPS) if rng.random() < CARELESS else 0
    appeal = QUALITY * gold_score(opening.prompt, plain) + PET_CHARM * liked + raters.length_charm * len(response.split())
    return garble(response, rng, slips), appeal - SLIP_COST * slips


def _silent(line: str) -> None:
    pass
