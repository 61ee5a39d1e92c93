"""Policy and critic: what a value is, one trunk or two, what the two losses do to a trunk that they share, and how the trunk is found."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from rlhf_studio.engine.models.critic import Trunk, make_value_head
from rlhf_studio.engine.models.policy import Policy, to_padded
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Slider, Toggle, Word, bars, ledger
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import RESPONSES, STEPS
from rlhf_studio.lessons.what_if import recompute
from rlhf_studio.ppo.advantages import gae
from rlhf_studio.ppo.logprobs import token_logprobs_and_entropy
from rlhf_studio.ppo.objective import Minibatch, NewPass, ObjectiveSettings, ppo_objective

NUMBER = 4

SHOWN, FIRST_RESPONSES = 10, 20


# --- a value for every token ---------------------------------------------------------------------------------------------------------


def value_per_token(run: LessonRun, response: int, place: int) -> Numbers:
    """The values of a recorded response's last tokens; and what follows from one value for all of them instead."""
    of = run.recorded(STEPS)
    row = int(response) - 1
    length = int(of.mask[row].sum())
    rewards = recompute(of).rewards[row : row + 1, :length]
    values, mask = of.values[row : row + 1, :length], of.mask[row : row + 1, :length]
    _, _, right = gae(rewards, values, mask, of.settings.gamma, of.settings.lam)
    _, _, wrong = gae(rewards, values[:, -1:].expand_as(values), mask, of.settings.gamma, of.settings.lam)
    first = length - SHOWN
    at = first + int(place) - 1
    change = float(values[0, at] - values[0, at - 1])
    return {
        "pieces": run.samples(STEPS)[row].pieces[first:],
        "token": run.samples(STEPS)[row].pieces[at - 1].strip(),
        "values": values[0, first:].tolist(),
        "rewards": rewards[0, first:].tolist(),
        "right": right[0, first:].tolist(),
        "wrong": wrong[0, first:].tolist(),
        "before": float(values[0, at - 1]),
        "after": float(values[0, at]),
        "score": float(of.scores[row]),
        "first": float(values[0, 0]),
        "last": float(values[0, -1]),
        "gamma": of.settings.gamma,
        "surprise": float(right[0, at - 1]),
        "wrong_surprise": float(wrong[0, at - 1]),
        "change": Word("up" if change > 0 else "down"),
    }


def draw_values(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("value"): n["values"]}
    return ledger(n["pieces"], rows, at=int(n["place"]) - 1)


def draw_surprises(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("reward"): n["rewards"], Word("right"): n["right"], Word("wrong"): n["wrong"]}
    return ledger(n["pieces"], rows, result=Word("right"), at=int(n["place"]) - 2 if n["place"] > 1 else None)


# --- one trunk or two ----------------------------------------------------------------------------------------------------------------

SIZES: dict[str, dict[str, Any]] = {"gpt2": {}, "large": {"n_embd": 1280, "n_layer": 36, "n_head": 20}}


@cache
def counted(run: LessonRun, model: str) -> tuple[int, int, int]:
    """Parameters of a language model, of its trunk, and of its value head. The larger models are built without memory for weights."""
    if model == "world":
        policy: Any = run.reference.model
    else:
        with torch.device("meta"):
            policy = GPT2LMHeadModel(GPT2Config(**SIZES[model]))
    head = make_value_head(policy.get_output_embeddings().weight.shape[1], "zero", 0)
    total, trunk, top = (sum(p.numel() for p in part.parameters()) for part in (policy, policy.base_model, head))
    return total, trunk, top


@cache
def bytes_per_weight() -> int:
    """Bytes for each number that is trained: the number, its gradient, and AdamW's two moments."""
    weight = torch.nn.Parameter(torch.zeros(1000))
    weight.grad = torch.ones(1000)
    optimizer = torch.optim.AdamW([weight])
    optimizer.step()
    state = [x for x in optimizer.state[weight].values() if x.shape == weight.shape]
    return sum(x.element_size() for x in (weight, weight.grad, *state))


@cache
def passes(run: LessonRun, separate: bool) -> int:
    """How many forward passes go through a trunk for one batch, counted while the engine's own policy computes them."""
    base: Any = copy.deepcopy(run.reference.model)
    trunk = Trunk(copy.deepcopy(base.base_model)) if separate else None
    policy = Policy(base, make_value_head(base.config.n_embd, "zero", 0), trunk)
    calls: list[int] = []
    for module in (base.base_model, *([] if trunk is None else [trunk.model])):
        module.register_forward_hook(lambda *_: calls.append(1))
    sample = run.samples(1)[0]
    with torch.no_grad():
        policy.logits_and_values(run.batch([sample.prompt_ids], [sample.ids]))
    return len(calls)


def two_ways(run: LessonRun, model: str, separate: bool) -> Numbers:
    """Parameters, passes and bytes with a value head on the policy's trunk, and with a critic that has a trunk of its own."""
    total, trunk, head = counted(run, model)
    shared, apart = total + head, total + trunk + head
    chosen = apart if separate else shared
    growth = chosen / total
    return {
        "whole": total,
        "head": head,
        "trunk": trunk,
        "trained": chosen,
        "bytes": chosen * bytes_per_weight() / 1e6,
        "per_weight": bytes_per_weight(),
        "passes": passes(run, separate),
        "growth": Word("hardly" if growth < 1.1 else "doubles" if growth > 1.8 else "grows"),
        "both": (shared, apart),
        "both_bytes": [count * bytes_per_weight() / 1e6 for count in (total, shared, apart)],
    }


def draw_ways(n: Numbers) -> Picture:
    names = (Word("no_critic"), Word("shared"), Word("apart"))
    rows = [Bar(name, [count]) for name, count in zip(names, n["both_bytes"], strict=True)]
    return bars(rows, [Word("megabytes")], label=Word("megabytes"), low=0, high=1.1 * max(n["both_bytes"]), digits=1)


# --- two losses, one trunk -----------------------------------------------------------------------------------------------------------

EPISODES = 8


@cache
def policy_before(run: LessonRun, step: int) -> Policy:
    """The policy that sampled in a step."""
    return run.policy(step - 1)


def one_trunk(run: LessonRun, vf_coef: float, detach: bool, step: int) -> Numbers:
    """How hard each of the two losses pulls at the trunk's last states, on recorded responses, at the first pass of a step."""
    of = run.recorded(int(step))
    samples = run.samples(int(step))[:EPISODES]
    tokens = run.batch([sample.prompt_ids for sample in samples], [sample.ids for sample in samples])
    width = tokens.mask.shape[1]
    again = recompute(of)
    old = [x[:EPISODES, :width].float() for x in (of.logprobs, of.ref_logprobs, of.values, again.whitened_advantages, again.returns)]
    batch = Minibatch(tokens.mask, *(x.double() for x in old))
    policy = policy_before(run, int(step))
    with torch.no_grad():
        _, states = policy(tokens)
    states = states.double().requires_grad_()
    weight: Any = policy.model.get_output_embeddings().weight
    head = policy.value_head
    assert head is not None

    def gradient(coefficient: float, *, policy_too: bool) -> torch.Tensor:
        logits = states @ weight.double().T
        logprobs, entropy = token_logprobs_and_entropy(logits[None], tokens.response_ids[tokens.mask][None])
        read = states.detach() if detach else states
        values = (read @ head.weight.double().T + head.bias.double()).squeeze(-1)
        new = NewPass(*(to_padded(x, tokens.mask) for x in (logprobs[0], values, entropy[0])))
        settings = ObjectiveSettings(vf_coef=coefficient, critic_only=not policy_too)
        loss = ppo_objective(batch, new, settings).loss_sum / int(tokens.mask.sum())
        if not loss.requires_grad:
            return torch.zeros_like(states)
        gradient_of_states: torch.Tensor = torch.autograd.grad(loss, states)[0]
        return gradient_of_states

    of_policy, of_value = gradient(0.0, policy_too=True), gradient(vf_coef, policy_too=False)
    both = gradient(vf_coef, policy_too=True)
    errors = (old[2] - old[4])[tokens.mask].double()
    pull, other = float(of_policy.norm()), float(of_value.norm())
    return {
        "policy": pull,
        "value": other,
        "together": float(both.norm()),
        "apart": float((of_policy + of_value - both).norm()),
        "harder": Word("policy" if pull > other else "critic_loss"),
        "cosine": float((of_policy * of_value).sum() / (pull * other)) if other > 1e-12 else 0.0,
        "errors": errors.tolist(),
        "head": head.weight[0].double().tolist(),
    }


def draw_pull(n: Numbers) -> Picture:
    rows = [Bar(Word("policy"), [n["policy"]]), Bar(Word("critic_loss"), [n["value"]]), Bar(Word("together"), [n["together"]])]
    return bars(rows, [Word("pull")], label=Word("pull"), low=0, high=0.08, digits=3)


# --- where the trunk is --------------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"vocab_size": 100, "bos_token_id": None, "eos_token_id": None}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=32, n_layer=2, n_head=2, **SMALL)),
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=64, **SMALL),
    ),
    "neox": (GPTNeoXForCausalLM, GPTNeoXConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, **SMALL)),
    "bloom": (BloomForCausalLM, BloomConfig(hidden_size=40, n_layer=2, n_head=2, **SMALL)),
}


@cache
def built(family: str) -> Any:
    """A small random model of the family."""
    kind, config = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config).eval()


def where_the_trunk_is(family: str, tokens: int) -> Numbers:
    """The trunk of a model, under the name that its class gives it, and what the two heads compute from its states."""
    model = built(family)
    prefix: str = model.base_model_prefix
    trunk = getattr(model, prefix)
    with torch.no_grad():
        states = trunk(input_ids=torch.arange(1, int(tokens) + 1)[None]).last_hidden_state[0]
        logits = model.get_output_embeddings()(states)
        values = make_value_head(states.shape[1], "normal", 0)(states).squeeze(-1)
    return {
        "kind": type(model).__name__,
        "prefix": prefix,
        "name": Word(prefix),
        "same": trunk is model.base_model,
        "has_transformer": hasattr(model, "transformer"),
        "states": list(states.shape),
        "width": states.shape[1],
        "logits": logits.shape[1],
        "of_logits": logits.numel(),
        "of_values": values.numel(),
    }


def draw_heads(n: Numbers) -> Picture:
    rows = [Bar(Word("language_head"), [n["of_logits"]]), Bar(Word("value_head"), [n["of_values"]])]
    return bars(rows, [Word("numbers")], label=Word("numbers"), low=0, high=1200, digits=0)


# --- for yourself --------------------------------------------------------------------------------------------------------------------


def check_yourself(run: LessonRun, step: int, response: int, place: int) -> Numbers:
    """One token of a recorded response: its reward, the values before and after it, and whether it was a good surprise."""
    of = run.recorded(int(step))
    row = int(response) - 1
    length = int(of.mask[row].sum())
    at = min(int(place), length) - 1
    again = recompute(of)
    after = float(of.values[row, at + 1]) if at + 1 < length else 0.0
    return {
        "token": run.samples(int(step))[row].pieces[at],
        "reward": float(again.rewards[row, at]),
        "before": float(of.values[row, at]),
        "after": after,
        "surprise": float(again.deltas[row, at]),
        "good": bool(again.deltas[row, at] > 0),
        "gamma": of.settings.gamma,
        "charge": of.settings.kl_coef * float(of.logprobs[row, at] - of.ref_logprobs[row, at]),
        "score": float(of.scores[row]) if at + 1 == length else 0.0,
    }


SCENES = (
    Scene(
        "value_per_token",
        value_per_token,
        controls=(Slider("response", 1, FIRST_RESPONSES, 1, start=1), Slider("place", 2, SHOWN, 1, start=4)),
        pictures={"values": draw_values, "surprises": draw_surprises},
        needs=("run",),
    ),
    Scene(
        "two_ways",
        two_ways,
        controls=(Choice("model", ("world", "gpt2", "large"), "gpt2"), Toggle("separate", start=True)),
        pictures={"ways": draw_ways},
        needs=("run",),
    ),
    Scene(
        "one_trunk",
        one_trunk,
        controls=(Slider("vf_coef", 0, 1, 0.1, start=0.5), Toggle("detach"), Slider("step", 1, STEPS, 1, start=20)),
        pictures={"pull": draw_pull},
        needs=("run",),
    ),
    Scene(
        "where_the_trunk_is",
        where_the_trunk_is,
        controls=(Choice("family", tuple(FAMILIES), "llama"), Slider("tokens", 1, 12, 1, start=6)),
        pictures={"heads": draw_heads},
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(Slider("step", 2, STEPS, 1, start=12), Slider("response", 1, RESPONSES, 1, start=7), Slider("place", 1, 32, 1, start=9)),
        needs=("run",),
    ),
)
