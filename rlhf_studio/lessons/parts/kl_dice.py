"""How KL is estimated: dice against truth, and loaded dice."""

from __future__ import annotations

import statistics

import torch

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.sampling.draw import draw
from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Series, Slider, Word, bars, line
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution, token_logprobs

EDGE = 1e-9
SAMPLED = ("k1", "k2", "k3", "abs")


# --- dice against truth ------------------------------------------------------------------------------------------------------

WORDS = ["good", "fine", "superb", "warm", "slow", "dull", "odd", "bad"]
REF = [1.6, 1.2, 0.9, 0.6, 0.2, -0.2, -0.6, -1.0]
LEANING = [-1.0, 0.3, 1.1, 0.6, 0.7, -0.4, 0.2, -0.9]
TOWARDS_RARE = [-0.613, -0.527, -0.331, -0.149, 0.317, 0.641, 0.923, 1.211]
DRAWS = 300
SHOWN = [*range(4, 40, 2), *range(40, DRAWS + 1, 5)]


def thrown(policy: list[float], ref: list[float], seed: int, top_k: int = 0) -> tuple[list[int], dict[str, list[float]]]:
    """Tokens drawn by the engine, and each estimate of the KL at each of them."""
    logits = torch.tensor([policy], dtype=torch.float64)
    uniforms = torch.rand(DRAWS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn = draw(logits.expand(DRAWS, -1).contiguous(), torch.zeros(DRAWS), uniforms, GenerationConfig(top_k=top_k)).tokens
    ids = drawn.unsqueeze(0)
    p, q = (token_logprobs(torch.tensor([[x]], dtype=torch.float64).expand(1, DRAWS, -1), ids) for x in (policy, ref))
    return drawn.tolist(), {name: kl_per_token(p, q, name)[0].tolist() for name in SAMPLED}


def running(x: list[float]) -> list[float]:
    sums = torch.tensor(x, dtype=torch.float64).cumsum(0)
    return (sums / torch.arange(1, len(x) + 1)).tolist()


def exact_kl(policy: list[float], ref: list[float]) -> float:
    return full_kl(*(log_distribution(torch.tensor([[x]], dtype=torch.float64)) for x in (policy, ref))).item()


def exact_mean_and_spread(policy: list[float], ref: list[float], estimator: str) -> tuple[float, float]:
    """Mean and standard deviation of an estimate over all tokens, weighted by their probabilities: the limit of many draws."""
    p, q = (log_distribution(torch.tensor([[x]], dtype=torch.float64))[0] for x in (policy, ref))
    each = kl_per_token(p, q, estimator)
    mean = (p.exp() * each).sum()
    return mean.item(), (p.exp() * (each - mean).square()).sum().sqrt().item()


def dice(drift: float, throw: float) -> Numbers:
    """The same tokens under four estimators, beside the exact sum."""
    policy = [a + drift * b for a, b in zip(REF, LEANING, strict=True)]
    ids, samples = thrown(policy, REF, int(throw))
    exact = exact_kl(policy, REF)
    means, spreads = {}, {}
    for name in SAMPLED:
        means[name], spreads[name] = exact_mean_and_spread(policy, REF, name)
    return {
        "policy": policy,
        "ids": ids,
        "samples": samples,
        "exact": exact,
        **{f"bias_{name}": means[name] - exact for name in SAMPLED},
        **{f"spread_{name}": spreads[name] for name in SAMPLED},
        **{f"mean_{name}": statistics.fmean(samples[name]) for name in SAMPLED},
        "negative": sum(x < 0 for x in samples["k1"]) / DRAWS,
        "steadier": Word("k1" if spreads["k1"] < spreads["k3"] else "k3"),
    }


def draw_dice(n: Numbers) -> Picture:
    tones = dict(zip(SAMPLED, ("kl", "value", "policy", "score"), strict=True))
    means = {name: running(n["samples"][name]) for name in n["samples"]}
    curves = [Series(Word(name), SHOWN, [mean[count - 1] for count in SHOWN], tone=tones[name]) for name, mean in means.items()]
    return line(curves, x=Word("throws"), y=Word("kl_nats"), x_range=(0, DRAWS), y_range=(-0.4, 1.6), levels={Word("exact"): n["exact"]})


def draw_bias(n: Numbers) -> Picture:
    items = [Bar(Word(name), [n[f"bias_{name}"], n[f"spread_{name}"]]) for name in SAMPLED]
    return bars([*items, Bar(Word("full"), [0.0, 0.0])], [Word("bias"), Word("spread")], label=Word("kl_nats"), low=-0.2, high=2.2)


# --- loaded dice -------------------------------------------------------------------------------------------------------------


def cut(top_k: float, tail: float, throw: float) -> Numbers:
    """Tokens drawn from the likeliest few, scored under the whole distribution."""
    policy = [a + tail * b for a, b in zip(REF, TOWARDS_RARE, strict=True)]
    ids, samples = thrown(policy, REF, int(throw), int(top_k))
    mean = statistics.fmean(samples["k1"])
    shares = [ids.count(token) / DRAWS for token in range(len(WORDS))]
    p, q = (log_distribution(torch.tensor([[x]], dtype=torch.float64))[0, 0].exp().tolist() for x in (policy, REF))
    return {
        "policy": policy,
        "ids": ids,
        "samples": {name: samples[name] for name in ("k1", "k3")},
        "exact": exact_kl(policy, REF),
        "mean_k1": mean,
        "mean_k3": statistics.fmean(samples["k3"]),
        "below": mean < 0,
        "kept": sum(sorted(p)[-int(top_k) :]),
        "shares": [p, shares, q],
    }


def draw_cut(n: Numbers) -> Picture:
    tones = {"k1": "kl", "k3": "policy"}
    means = {name: running(each) for name, each in n["samples"].items()}
    curves = [Series(Word(name), SHOWN, [mean[count - 1] for count in SHOWN], tone=tones[name]) for name, mean in means.items()]
    return line(curves, x=Word("throws"), y=Word("kl_nats"), x_range=(0, DRAWS), y_range=(-1.6, 2.4), levels={Word("exact"): n["exact"]})


def draw_shares(n: Numbers) -> Picture:
    items = [Bar(word, [part[index] for part in n["shares"]]) for index, word in enumerate(WORDS)]
    return bars(items, [Word("by_policy"), Word("by_dice"), Word("by_ref")], label=Word("share"), low=0, high=1)


SCENES = (
    Scene(
        "dice",
        dice,
        controls=(Slider("drift", 0.1, 2, 0.1, start=1), Slider("throw", 1, 40, 1, start=3)),
        pictures={"dice": draw_dice, "bias": draw_bias},
    ),
    Scene(
        "cut",
        cut,
        controls=(Slider("top_k", 1, len(WORDS), 1, start=3), Slider("tail", 0.2, 2, 0.1, start=1), Slider("throw", 1, 40, 1, start=3)),
        pictures={"shares": draw_shares, "cut": draw_cut},
    ),
)
