"""The reference under LoRA: the same weights with the adapters off, and when that is the wrong model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch
from peft import PeftModel

from rlhf_studio.config import LoraConfig
from rlhf_studio.engine.models.adapters import POLICY, REFERENCE
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.merging import merged_for_good
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.lessons.kit import Box, Choice, Numbers, Picture, Scene, Slider, Toggle, Word, flow, ledger
from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.parts import reference_memory
from rlhf_studio.lessons.small_models import (
    WIDTH,
    WORDS,
    adapt,
    factors,
    language_model_and_classifier,
    layers_of,
    move,
    response_logits,
    sentence,
    tiny_adapted,
    tiny_model,
)
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution, token_logprobs
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.rewards import shape_rewards

NUMBER = 6

TEXT = sentence([WORDS.index(word) for word in ("the", "film", "is")], [WORDS.index("superb"), WORDS.index(".")])
RANK, ALPHA, SFT, PPO, MEBIBYTE = 2, 4.0, 271, 32, 1 << 20  # of all adapters here; the seeds of what SFT and PPO may have learned


def policy_of(model: PeftModel) -> Policy:
    return Policy(model, make_value_head(WIDTH, "zero", 0))


def learnable(model: PeftModel, adapter: str) -> int:
    """Numbers of this adapter that a backward pass would give a gradient."""
    both = [factor for layer in layers_of(model) if adapter in layer.scaling for factor in factors(layer, adapter)]
    return sum(factor.numel() for factor in both if factor.requires_grad)


# --- adapters off is the base ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def off_is_base(moved: float, word: str) -> Numbers:
    """The logits of the next word for policy, reference and base, all measured."""
    model = move(tiny_adapted(RANK, ALPHA), moved, seed=PPO)
    policy = policy_of(model)
    reference, batch = Reference(policy, torch.float64), sentence(TEXT.prompt_ids[0].tolist(), [WORDS.index(word)])
    ours = response_logits(policy, batch)
    with reference.active() as other:
        theirs = response_logits(other, batch)
    again, base = response_logits(policy, batch), response_logits(ResponseModel(tiny_model()), batch)
    logprobs, ref_logprobs = (token_logprobs(logits, batch.response_ids) for logits in (ours, theirs))
    return {
        "policy_logits": ours[0, 0].tolist(),
        "reference_logits": theirs[0, 0].tolist(),
        "base_logits": base[0, 0].tolist(),
        "apart": float((ours - theirs).abs().max()),
        "from_base": float((theirs - base).abs().max()),
        "after": float((again - ours).abs().max()),
        "logprob": float(logprobs),
        "ref_logprob": float(ref_logprobs),
        "kl": float(kl_per_token(logprobs, ref_logprobs, "k1")),
        "weights": sum(parameter.numel() for parameter in tiny_model().parameters()),
        "adapters": learnable(model, POLICY),
        "reads": Word("both" if torch.equal(ours, base) else "base" if torch.equal(theirs, base) else "policy"),
    }


def draw_logits(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {
        Word("policy"): n["policy_logits"],
        Word("reference"): n["reference_logits"],
        Word("base"): n["base_logits"],
    }
    return ledger(list(WORDS), rows, result=Word("reference"), at=WORDS.index(n["word"]))


# --- one adapter, two adapters, a model of its own ------------------------------------------------------------------------------


@cache
def _two() -> PeftModel:
    """The tiny model with the adapter that learns and a second one, the reference's."""
    model = tiny_adapted(RANK, ALPHA)
    model.add_adapter(REFERENCE, model.peft_config[POLICY])
    return move(move(model.double(), 0.6, REFERENCE, seed=SFT), 0.3, POLICY, seed=PPO)


@contextmanager
def as_trl(model: PeftModel, second: bool) -> Iterator[None]:
    """What TRL's context does to the policy, in peft's terms."""
    with nullcontext() if second else model.disable_adapter():
        if second:
            model.set_adapter(REFERENCE)
        yield
        if second:
            model.set_adapter(POLICY)


def learnable_inside() -> tuple[int, int]:
    """How many numbers of the second adapter could learn while it is the reference: in TRL's way, and in ours."""
    model = _two()
    with as_trl(model, True):
        theirs = learnable(model, REFERENCE)
    with Reference(policy_of(model), torch.float64).active():
        return theirs, learnable(model, REFERENCE)


@torch.no_grad()
def switch(adapters: str, own: bool) -> Numbers:
    """What is switched on while the reference reads, and what could learn then."""
    second = adapters == "two"
    model = _two() if second else move(tiny_adapted(RANK, ALPHA), 0.3, seed=PPO)
    model.set_adapter(POLICY)
    policy = policy_of(model)
    reference = Reference(policy, torch.float64, tiny_model() if own else None)
    before = response_logits(policy, TEXT)
    with reference.active() as reader:
        logits = response_logits(reader, TEXT)
        is_policy, on = reader is policy, [] if layers_of(model)[0].disable_adapters else list(layers_of(model)[0].active_adapters)
    with as_trl(model, second):
        trl_logits = response_logits(policy, TEXT)
    after = response_logits(policy, TEXT)
    base = response_logits(ResponseModel(tiny_model()), TEXT)
    case = "own" if not is_policy else "switched" if REFERENCE in on else "off"
    theirs, inside = learnable_inside() if case == "switched" else (0, 0)
    return {
        "case": Word(case),
        "base_apart": float((logits - base).abs().max()),
        "is_base": bool(torch.equal(logits, base)),
        "as_trl_apart": 0.0 if own else float((logits - trl_logits).abs().max()),
        "inside": inside,
        "theirs": theirs,
        "policy_learns": learnable(model, POLICY),
        "restored": bool(torch.equal(before, after)),
        "models": 2 if own else 1,
        "ref_model": Word("given") if own else "None",
    }


def draw_switch(n: Numbers) -> Picture:
    case, logits = str(n["case"]), Word("reference_logits")
    used = {"own": "copy", "switched": "second_adapter"}.get(case, "base")

    def box(name: str, column: int, row: int, *to: str) -> Box:
        on = name == used or (name == "base" and case == "switched")
        note = "" if name == "base" else Word("now" if on else "not_now")
        return Box(Word(name), column, row, note=note, tone="policy" if on else "quiet", to=[Word(label) for label in to])

    after_base = {"off": ("reference_logits",), "switched": ("second_adapter",), "own": ()}[case]
    boxes = [Box(Word("tokens"), 0, 1, to=[Word(used if case == "own" else "base")]), box("base", 1, 1, *after_base)]
    boxes += [box("first_adapter", 2, 0), Box(logits, 3, 1, tone="kl")]
    if n["adapters"] == "two":
        boxes.append(box("second_adapter", 2, 2, *(("reference_logits",) if case == "switched" else ())))
    if case == "own":
        boxes.append(box("copy", 1, 3, "reference_logits"))
    return flow(boxes)


# --- after LoRA-SFT --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def after_sft(way: str, sft: float, beta: float) -> Numbers:
    """PPO begins where an adapter of SFT has led. The KL of its first policy, before anything was learned."""
    policy, reference = _start(way, sft)
    ours = response_logits(policy, TEXT)
    with reference.active() as reader:
        theirs = response_logits(reader, TEXT)
    base = response_logits(ResponseModel(tiny_model()), TEXT)
    logprobs, ref_logprobs = (token_logprobs(logits, TEXT.response_ids) for logits in (ours, theirs))
    kl = kl_per_token(logprobs, ref_logprobs, "k1")
    charged = shape_rewards(kl, torch.zeros(1, dtype=torch.float64), TEXT.mask, beta)
    exact = float(full_kl(log_distribution(ours), log_distribution(theirs)).sum())
    return {
        "exact": exact,
        "kl": float(kl.sum()),
        "charged": float(charged.sum()),
        "starts_at_zero": exact < 1e-9,
        "reference_is_base": float((theirs - base).abs().max()) < 1e-9,
        "held_to": Word("to_base" if float((theirs - ours).abs().max()) > 1e-9 else "to_sft"),
        "logprobs": logprobs[0].tolist(),
        "ref_logprobs": ref_logprobs[0].tolist(),
        "kls": kl[0].tolist(),
        "charges": charged[0].tolist(),
        "policy_learns": learnable_in_trl()[0],
        "value_learns": learnable_in_trl()[1],
        "adapters": {"off": 1, "merged": 1, "beside": 2}[way],
    }


@cache
def learnable_in_trl() -> tuple[int, int]:
    """How many numbers of policy and value model learn when only the policy gets an adapter."""
    policy, value_model = language_model_and_classifier("gpt2")
    mine = sum(x.numel() for x in adapt(policy, LoraConfig(enabled=True, r=RANK, alpha=ALPHA)).parameters() if x.requires_grad)
    return mine, sum(x.numel() for x in value_model.parameters() if x.requires_grad)


def _start(way: str, sft: float) -> tuple[Policy, Reference]:
    """Policy and reference at PPO's first step: the SFT adapter learns on, is merged first, or stays beside as a second one."""
    model = move(tiny_adapted(RANK, ALPHA), sft, seed=SFT)
    if way == "merged":
        settings = LoraConfig(enabled=True, r=RANK, alpha=ALPHA)
        model = adapt(merged_for_good(model), settings).double()
    if way == "beside":
        model.add_adapter(REFERENCE, model.peft_config[POLICY])
        model.double()
        for layer in layers_of(model):
            for mine, sfts in zip(factors(layer, REFERENCE), factors(layer, POLICY), strict=True):
                mine.copy_(sfts)
        model.set_adapter(POLICY)
    policy = policy_of(model)
    return policy, Reference(policy, torch.float64)


def draw_charges(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {
        Word("policy"): n["logprobs"],
        Word("reference"): n["ref_logprobs"],
        Word("kl_row"): n["kls"],
        Word("charge"): n["charges"],
    }
    return ledger([WORDS[token] for token in TEXT.response_ids[0].tolist()], rows, result=Word("charge"))


# --- three names -----------------------------------------------------------------------------------------------------------------


def check_yourself(new: float, old: float, ref: float, order: int) -> Numbers:
    """One token under three models: the policy that learns, the policy that sampled, and the reference."""
    now, then, of_reference = (torch.tensor([[number]], dtype=torch.float64) for number in (new, old, ref))
    unit, mask = torch.ones_like(now), torch.ones(1, 1, dtype=torch.bool)
    kl = float(kl_per_token(then, of_reference, "k1"))
    return {
        "kl": kl,
        "ratio": float(policy_loss(now, then, unit, mask, 0.2).ratio),
        "against_reference": float(policy_loss(now, of_reference, unit, mask, 0.2).ratio),
        "step": new - old,
        **options(kl, [new - old, new - ref], int(order), digits=1),
    }


SCENES = (
    Scene(
        "off_is_base",
        off_is_base,
        controls=(Slider("moved", 0, 1, 0.1, start=0.5), Choice("word", ["superb", "fine", "dull"], start="superb")),
        pictures={"logits": draw_logits},
    ),
    Scene("switch", switch, controls=(Choice("adapters", ["one", "two"], start="one"), Toggle("own")), pictures={"switch": draw_switch}),
    Scene(
        "after_sft",
        after_sft,
        controls=(
            Choice("way", ["off", "merged", "beside"], start="off"),
            Slider("sft", 0, 1, 0.1, start=0.5),
            Slider("beta", 0, 0.5, 0.05, start=0.1),
        ),
        pictures={"charges": draw_charges},
    ),
    reference_memory.SCENE,
    Scene(
        "check_yourself",
        check_yourself,
        controls=(
            Slider("new", -4, -0.2, 0.1, start=-1.2),
            Slider("old", -4, -0.2, 0.1, start=-1.4),
            Slider("ref", -4, -0.2, 0.1, start=-2.3),
            Slider("order", 0, 2, 1, start=1),
        ),
    ),
)
