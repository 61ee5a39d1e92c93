"""Sequence classifiers as reward models: the token whose hidden state is scored, and the layer that computes the score.

A decoder classifier of transformers scores the right-most token that is not the pad token of its configuration. Which tokens are padding
is known from the lengths, here as everywhere in the engine, so the head is given the state of each text's last token. Then a tokenizer
needs no pad token, and where the pad token is the end token, a real end token at the end is not taken for padding. Nothing of the model's
configuration is touched for it: lanes share the model.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from rlhf_studio.engine.compute.sharding import as_forward
from rlhf_studio.engine.models.heads import HiddenHead
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.language import S_


def unused_id(model: Any, rows: Sequence[Sequence[int]], preferred: int | None) -> int | None:
    """An id of the model's vocabulary that is in none of the rows: ``preferred`` if it is one. None when every id is in them."""
    used = {token for row in rows for token in row}
    size = model.get_input_embeddings().weight.shape[0]
    if preferred is not None and preferred < size and preferred not in used:
        return preferred
    return next((candidate for candidate in range(size) if candidate not in used), None)


def own_pad(tokenizer: Any, model: Any) -> int | None:
    """The id of the pad token. None when the tokenizer has none, when it is the end token, or when the model has no row for it."""
    pad, rows = tokenizer.pad_token_id, model.get_input_embeddings().weight.shape[0]
    return None if pad is None or pad == tokenizer.eos_token_id or pad >= rows else int(pad)


def last_token_logits(model: Any, rows: Sequence[Sequence[int]], preferred: int | None) -> torch.Tensor:
    """The classifier's outputs (B, outputs) float32 for rows of token ids.

    Padding is on the right, so the model's default position ids are correct. A model whose head does not read the last token's state
    looks for the end of a text itself. Its padding then is an id that occurs in none of the rows; where every id occurs, each row is a
    batch of its own.
    """
    classifier: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    if reads_its_last_token(classifier):  # whatever fills the padding
        ends = torch.tensor([len(row) - 1 for row in rows], device=model.device)

        def of_last_tokens() -> torch.Tensor:
            states = classifier.base_model(**_padded(model, rows, 0)).last_hidden_state
            logits: torch.Tensor = classifier.score(states[torch.arange(len(rows), device=model.device), ends])
            return logits.float()

        return as_forward(model, of_last_tokens)
    pad = unused_id(model, rows, preferred)
    if pad is None and len(rows) > 1:
        return torch.cat([last_token_logits(model, [row], None) for row in rows])
    return _own_logits(model, rows, pad)


def reads_its_last_token(model: PreTrainedModel) -> bool:
    """Whether a head computes the scores from the last token's state, as in transformers' decoder classifiers."""
    score = getattr(model, "score", None)
    head = getattr(score, "original_module", score)  # peft wraps a head that is trained beside adapters
    return type(model).__name__.endswith("ForSequenceClassification") and type(head) in (nn.Linear, HiddenHead)


def _own_logits(model: Any, rows: Sequence[Sequence[int]], pad: int | None) -> torch.Tensor:
    with _pad_token(model, pad):
        logits: torch.Tensor = model(**_padded(model, rows, pad or 0)).logits
        return logits.float()


def _padded(model: Any, rows: Sequence[Sequence[int]], fill: int) -> dict[str, Any]:
    mask = pad_right([[1] * len(row) for row in rows], 0, model.device)
    return {"input_ids": pad_right(rows, fill, model.device), "attention_mask": mask, **_no_cache(model)}


def classifier_facts(model: Any) -> dict[str, Any]:
    """What a loaded classifier is, as plain data for people: ``class``, ``parameters``, ``device``, ``dtype``, and ``head``, the name and
    shape of each weight behind its trunk.
    """
    trunk = set(model.base_model.parameters())
    head = {name: list(weight.shape) for name, weight in model.named_parameters() if weight not in trunk}
    return {
        "class": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "head": head,
    }


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def _pad_token(model: Any, pad: int | None) -> Iterator[None]:
    """Inside, the model's configuration names this pad token; lanes, which share the model, wait for each other."""
    with _ONE_AT_A_TIME:
        config = model.config.get_text_config()
        usual, config.pad_token_id = config.pad_token_id, pad
        try:
            yield
        finally:
            config.pad_token_id = usual


def _no_cache(model: Any) -> dict[str, bool]:
    return {"use_cache": False} if hasattr(model.config.get_text_config(), "use_cache") else {}


# --- the score head --------------------------------------------------------------------------------------------------------------


def score_head(model: Any) -> nn.Linear:
    """The linear layer behind the trunk that gives the one score. Raises ValueError when there is no such layer."""
    trunk = set(model.base_model.modules())
    heads = [module for module in model.modules() if module not in trunk and isinstance(module, nn.Linear) and module.out_features == 1]
    if len(heads) != 1:
        raise ValueError(S_(f"{type(model).__name__} has no linear layer with one output behind its trunk"))
    return heads[0]


@torch.no_grad()
def sum_of_outputs(model: Any, weights: Sequence[float]) -> None:
    """Make a classifier of several outputs (a linear ``score`` head) into one with a single output: their sum, weighted.

    Raises ValueError when the model has another head, or another number of outputs.
    """
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear) or head.out_features != len(weights):
        raise ValueError(S_(f"{type(model).__name__} has no linear layer named score with {len(weights)} outputs"))
    row = torch.tensor(weights, dtype=head.weight.dtype, device=head.weight.device)[None]
    single = nn.Linear(head.in_features, 1, bias=head.bias is not None, dtype=head.weight.dtype, device=head.weight.device)
    single.weight.copy_(row @ head.weight)
    if head.bias is not None:
        single.bias.copy_(row[0] @ head.bias)
    model.score = single
    model.num_labels = model.config.num_labels = 1


@torch.no_grad()
def rescale_scores(model: Any, factor: float, offset: float) -> None:
    """Change the model so that every text that scored s scores ``factor * s + offset``. Raises ValueError without a score head.

    The offset is put where plain transformers saves and loads it, so that the saved model gives the same scores there:

    - into the bias of the score head, where the head has one (encoders);
    - else into the bias of the LayerNorm whose output the head takes (GPT-2 and others). Adding offset * w / |w|^2 to it, where w are the
      head's weights, adds exactly the offset to every score;
    - else (RMSNorm and a head without bias: Llama, Qwen) the head gets a bias. :func:`load_model.load_reward_model` loads it from the
      saved file; plain transformers ignores it, so there every score lacks the offset, and comparisons of two texts stay the same.
    """
    head: Any = score_head(model)
    norm = None if head.bias is not None else _norm_before(model, head)
    head.weight.mul_(factor)
    if norm is not None:
        weight = head.weight[0]
        norm.bias.add_(offset * weight / weight.square().sum())
    elif head.bias is not None:
        head.bias.mul_(factor).add_(offset)
    else:
        head.bias = nn.Parameter(torch.full_like(head.weight[:, 0], offset))


def normalise_scores(model: Any, scores: torch.Tensor) -> tuple[float, float]:
    """Rescale the model so that texts which scored ``scores`` (N,) score with mean 0 and standard deviation 1.

    :func:`rescale_scores` says where the change is stored, and what plain transformers makes of it.
    Returns mean and standard deviation before. Raises ValueError when the scores do not vary, or when the model has no score head.
    """
    mean, std = float(scores.mean()), float(scores.std())
    if not std > 1e-6 * max(1.0, abs(mean)):  # less is rounding
        raise ValueError(S_("the scores do not vary, so they cannot be scaled to variance 1"))
    rescale_scores(model, 1 / std, -mean / std)
    return mean, std


def _norm_before(model: Any, head: nn.Linear) -> nn.LayerNorm | None:
    """The LayerNorm with a bias whose output is the head's input, unchanged; found by a forward pass. None when there is none."""
    outputs: dict[nn.LayerNorm, torch.Tensor] = {}
    inputs: list[torch.Tensor] = []
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm) and module.bias is not None]
    hooks = [norm.register_forward_hook(lambda module, _, output: outputs.update({module: output})) for norm in norms]
    hooks.append(head.register_forward_pre_hook(lambda _, given: inputs.append(given[0])))
    was_training = model.training
    model.eval()
    try:
        _own_logits(model, [[0, 1]], None)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    given = inputs[0]
    return next((norm for norm, output in outputs.items() if output.shape == given.shape and torch.equal(output, given)), None)
