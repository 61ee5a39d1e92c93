"""The words of the Learn page's search: their stems, Greek letters, what means the same, and pages outside Learn that it names."""

from __future__ import annotations

import re
from functools import cache

_WORD = re.compile(r"[^\W_]+")
IGNORED = frozenset(
    _WORD.findall(
        "a about after all an and any are as at be been but by can did do does for from gets had happen happens has have how i if in into "
        "is it its me my of on or ours should so than that the their them then there these they this to versus vs was we were what when "
        "where which who whose why will with would you your",
    )
)
_LETTERS = _WORD.findall("α alpha β beta γ gamma δ delta ε epsilon ϵ epsilon λ lambda μ mu π pi ρ rho σ sigma τ tau θ theta")
GREEK = dict(zip(_LETTERS[::2], _LETTERS[1::2], strict=True))
_GREEK = str.maketrans({letter: f" {name} " for letter, name in GREEK.items()})

_PHRASES = {
    "gpu memory": "memory",
    "vram": "memory",
    "out of memory": "memory",
    "oom": "memory",
    "value model": "critic",
    "value function": "critic",
    "value network": "critic",
    "clip range": "cliprange",
    "reference model": "reference",
    "probability ratio": "ratio",
    "multi gpu": "processes",
    "multiple gpus": "processes",
    "several gpus": "processes",
    "learning rate": "learning_rate",
    "reward hacking": "hacking",
    "after stop token": "stop_token padding",
    "after the stop token": "stop_token padding",
    "after the end token": "stop_token padding",
    "stop token": "stop_token",
    "end token": "stop_token",
    "eos token": "stop_token",
    "start of train": "train_start",
    "four models": "four_models",
    "zero 3": "zero_3",
    "zero stage 3": "zero_3",
}
"""What people write in several words, or in short, and what is looked for."""

_SAME = (
    "query prompt",
    "response completion answer",
    "critic value",
    "reference ref",
    "checkpoint save saving",
    "resume continue restart",
    "processes multigpu distributed",
    "normalise whiten standardise",
    "hacking overoptimisation exploit judge",
    "gamma discount",
    "lambda lam",
    "beta coefficient kl_coef price",
    "ratio rho",
    "epsilon cliprange clip",
    "delta surprise",
    "actor policy",
    "finetune sft",
    "advantage credit",
    "gradient push slope",
    "backward left",
    "statistics stats metric",
    "log_softmax logprob",
    "7b 8b 13b 70b memory",
    "stop_token eos end",
    "drift kl",
)
"""Words that stand for one another; the more alike two are, the earlier they stand in their line."""

PAGES = (
    (
        "Runs tab",
        "Checkpoints: save and resume training",
        "A run saves checkpoints while it trains. The Runs tab lists the runs; a stopped run can be resumed there. "
        "The settings are engine.checkpoint_every and engine.keep_checkpoints.",
    ),
    (
        "Evaluate tab",
        "Win rate: which of two models answers better",
        "The Evaluate tab compares checkpoints and models: win rate, scores, answers side by side.",
    ),
    (
        "docs/many-gpus.md",
        "Several GPUs, processes and machines",
        "Distributed training (multi gpu): engine.processes, accelerate, FSDP.",
    ),
    (
        "docs/data.md",
        "Chat template: prompts for a chat model",
        "The setting data.chat_template writes each prompt as the tokenizer of the policy defines.",
    ),
    (
        "docs/planner.md",
        "GPU memory and time before a run",
        "How much memory a run needs, for a 7B model too, and how long it takes.",
    ),
    ("docs/export.md", "Export: take the trained model home", "Weights, merged adapters, tables, and push to the hub."),
    (
        "Talk tab",
        "Talk to a checkpoint",
        "Write prompts of your own, chat with a checkpoint, and see each token's probability.",
    ),
    (
        "Feedback tab",
        "Human feedback: label preferences",
        "Compare answers yourself and train a reward model on your preferences.",
    ),
    ("Live tab", "Charts of a run: metrics, stats, samples", "Watch loss, KL, reward and samples of a run while it trains."),
)
"""What is found outside Learn: where, a title, and what is said of it."""


def words(text: str) -> list[str]:
    """Words in small letters; a name is taken apart at underscores and at capitals. Greek letters are written out."""
    text = text.translate(_GREEK)
    return list(dict.fromkeys(_WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())))


def whole_names(text: str) -> list[str]:
    """Names in small letters with their underscores; a dotted name whole, and each part of it."""
    dotted = [name.strip(".") for name in re.findall(r"[\w.]+", text.lower())]
    return [part for name in dotted for part in dict.fromkeys((name, *name.split("."))) if part]


def phrases(text: str) -> list[str]:
    """What is looked for, for each known phrase that stands in a text."""
    plain = _plain(text)
    return [word for phrase, found in _PHRASES.items() if f" {phrase} " in plain for word in found.split()]


def _plain(text: str) -> str:
    """Small letters and single spaces, one at each end too, so that whole words can be looked for."""
    parts = re.split(r"[^\w.]+", text.translate(_GREEK).lower())
    return f" {' '.join(part.strip('.') for part in parts if part.strip('.'))} "


@cache
def stem(word: str) -> str:
    """A word without its usual endings, in British spelling: "normalizing", "normalised" and "normalise" are one."""
    if len(word) < 4 or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = re.sub(r"i[sz]ation$", "ise", word)
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and re.search(r"[aeiouy]", root):
            word = root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "ls" else root
            break
    word = re.sub(r"iz(e?)$", r"is\1", word)
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def wanted_stems(query: str) -> list[dict[str, float]]:
    """What a query asks for: for each of its words the stems that answer it, each with how well it does (1 for the word itself)."""
    text = _plain(query)
    for phrase, word in _PHRASES.items():
        text = text.replace(f" {phrase} ", f" {word} ")
    names = [name for name in whole_names(text) if "_" in name.strip("_")]
    found = [*names, *(word for word in words(" ".join(part for part in text.split() if part not in names)))]
    telling = [word for word in found if word not in IGNORED and not word.isdigit()]
    return [_alternatives(word) for word in telling or found]


def _alternatives(word: str) -> dict[str, float]:
    root = stem(word)
    found = {root: 1.0}
    for group in _synonyms().get(root, ()):
        for place, other in enumerate(group):
            found.setdefault(other, max(0.7 - 0.1 * place, 0.3))
    return found


@cache
def _synonyms() -> dict[str, tuple[tuple[str, ...], ...]]:
    groups = [tuple(stem(word) for word in line.split()) for line in _SAME]
    return {word: tuple(group for group in groups if word in group) for group in groups for word in group}
