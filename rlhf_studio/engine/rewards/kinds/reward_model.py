"""Scoring texts with a sequence-classification model and its own tokenizer."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.config import ClassifierReward, RewardModelReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, moved
from rlhf_studio.engine.compute.lanes import balanced_parts
from rlhf_studio.engine.compute.packing import attention_for, enable_packing, pack_texts, transformers_attention
from rlhf_studio.engine.compute.ranks import ONE_RANK
from rlhf_studio.engine.models.classifiers import reads_its_last_token, unused_id
from rlhf_studio.engine.models.load_model import LoadedRewardModel, load_reward_model
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.kinds.chats import OwnChat, own_chat
from rlhf_studio.engine.rewards.registry import BuildContext, scorer
from rlhf_studio.engine.text import cut_left
from rlhf_studio.inputs.models.rotation import rotation_boundary

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class TextTokens:
    """One text as the model reads it, for people to look at.

    Attributes:
        ids: its tokens.
        first: index of the first token that belongs to the response, in full or in part.
        cut: tokens that were cut off at the beginning.
        ended: whether the end token was put behind it.
    """

    ids: list[int]
    first: int
    cut: int
    ended: bool


@dataclass(frozen=True)
class _Text:
    """One text as the model reads it: L token ids, and L token types (BERT's segments), or None where there are none.

    ``uncut_length`` counts its tokens before it was cut to what the model reads.
    """

    ids: list[int]
    types: list[int] | None
    uncut_length: int


class RewardModelScorer:
    """Gives one number per (prompt, response).

    The text is tokenised anew for this model. Batches are padded on the right with an id that does not occur in the batch,
    because decoder classifiers look for the last token that is not the pad token: with pad equal to eos they would score
    the token before the end.
    """

    def __init__(
        self,
        name: str,
        loaded: LoadedRewardModel,
        settings: ClassifierReward,
        compute: Compute,
        chat: OwnChat | None = None,
    ):
        """``name`` is the model's, for people. With ``chat`` each text is the whole conversation as the model's own template writes it."""
        self.name, self.half = name, compute.dtype is not torch.float32
        self._chat, self.reads_chats = chat, chat is not None
        self._model: Any = moved(loaded.model, compute.device)
        self._tokenizer = loaded.tokenizer
        self._label = loaded.label
        self._trained = loaded.trained_on
        self._settings = settings
        self._compute = compute
        positions = longest_text(loaded.model) or settings.max_tokens
        self._longest = min(settings.max_tokens, positions, loaded.tokenizer.model_max_length)
        self.reads_last = reads_its_last_token(loaded.model)
        self._packs = compute.device.type == "cpu" and self.reads_last and enable_packing(loaded.model)
        self._boundary = rotation_boundary(loaded.model.config.get_text_config().to_dict()) or math.inf
        self._takes_types = "token_type_ids" in inspect.signature(loaded.model.forward).parameters

    def shares(self, tokenizer: PreTrainedTokenizerBase) -> bool:
        """Whether this model's tokenizer has the same tokens under the same ids."""
        return self._tokenizer.get_vocab() == tokenizer.get_vocab()

    def __call__(self, episodes: Episodes) -> Tensor:
        """As :meth:`answer`, the scores (B,) alone."""
        return self.answer(episodes).scores

    @torch.no_grad()
    def answer(self, episodes: Episodes) -> Answer:
        """Scores, and how much of each text was read. Raises :class:`ComponentError` for a conversation that the template refuses."""
        texts = [self._encode(text, stopped) for text, stopped in zip(self._texts(episodes), episodes.stopped, strict=True)]
        return Answer(self._scores(texts), reading=torch.tensor([[len(text.ids), text.uncut_length] for text in texts]))

    def _scores(self, texts: list[_Text]) -> Tensor:
        scores, pad = torch.empty(len(texts)), None
        if not self._packs:
            pad = self._unused_id(texts)
            if pad is None:  # nothing to pad with: each text alone
                return torch.cat([self._alone(text) for text in texts])
            self._model.config.get_text_config().pad_token_id = pad  # once for all: lanes share the model

        def score(rows: list[int]) -> None:
            part = [texts[row] for row in rows]
            scores[rows] = self._score_packed(part) if self._packs else self._score_batch(part, pad)

        order = sorted(range(len(texts)), key=lambda row: len(texts[row].ids))
        short = sum(len(text.ids) <= self._boundary for text in texts)
        for side in (order[:short], order[short:]):
            self._compute.lanes.map(score, self._parts(side))
        return scores

    def _parts(self, order: list[int]) -> list[list[int]]:
        """Texts that are scored together; ``order`` ascends in length."""
        size = self._compute.lanes.rows_per_part(len(order), self._settings.batch_size)
        if self._packs:
            return balanced_parts(order, math.ceil(len(order) / size))
        return [order[start : start + size] for start in range(0, len(order), size)]  # of equal length together: less padding

    @property
    def network(self) -> PreTrainedModel:
        """The classifier itself."""
        network: PreTrainedModel = self._model
        return network

    @torch.no_grad()
    def alone(self, episodes: Episodes) -> Tensor:
        """The same scores by the model's own forward pass: each text by itself, without padding, mask or positions."""
        config, scores = self._model.config.get_text_config(), []
        before = config.pad_token_id
        if self.reads_last:
            config.pad_token_id = None  # a text alone ends with its last token, whichever it is
        try:
            for text, stopped in zip(self._texts(episodes), episodes.stopped, strict=True):
                encoded = self._encode(text, stopped)
                inputs = {"input_ids": encoded.ids} | ({} if encoded.types is None else {"token_type_ids": encoded.types})
                with self._compute.autocast(), transformers_attention(self._model):
                    output = self._model(**{name: torch.tensor([row], device=self._compute.device) for name, row in inputs.items()})
                scores.append(self._pick(output.logits.float()).cpu())
        finally:
            config.pad_token_id = before
        return torch.cat(scores)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own tokenizer."""
        return self._tokenizer

    def tokens(self, episodes: Episodes) -> TextTokens:
        """How the first of the episodes is read."""
        text, ids = self._texts(episodes)[0], self._encode(self._texts(episodes)[0], episodes.stopped[0]).ids
        options = {"truncation": False, "verbose": False, "add_special_tokens": self._chat is None}
        encoded = self._tokenizer(text, return_offsets_mapping=self._tokenizer.is_fast, **options)
        uncut, offsets = encoded["input_ids"], encoded.get("offset_mapping") or []
        if self._begins_twice(uncut):
            uncut, offsets = uncut[1:], offsets[1:]
        ended = len(ids) > len(uncut) or (len(ids) == len(uncut) and ids != uncut)
        missing = len(uncut) + ended - len(ids)
        response = episodes.responses[0].strip() if self._chat is not None else episodes.responses[0]  # templates may strip it
        start = text.rfind(response) if response else len(text)
        first = next((index for index, (_, end) in enumerate(offsets) if end > start), len(uncut))
        return TextTokens(ids, max(0, first - missing), missing, ended)

    def text_read(self, episodes: Episodes) -> str:
        """What the model reads of the first of the episodes, special tokens included."""
        return str(self._tokenizer.decode(self.tokens(episodes).ids, clean_up_tokenization_spaces=False))

    @torch.no_grad()
    def prefix_scores(self, episodes: Episodes) -> list[float] | None:
        """Scores of the first episode's text as if it ended at each of its tokens, from one forward pass: the head at every position.

        None for a model that is not a head on the last token's state, or whose tokens see later ones.
        """
        if not self.reads_last or not self._is_causal():
            return None
        ids = self._encode(self._texts(episodes)[0], episodes.stopped[0]).ids
        with self._compute.autocast(), transformers_attention(self._model):
            row = torch.tensor([ids], device=self._compute.device)
            states = self._model.base_model(input_ids=row, use_cache=False).last_hidden_state[0]
            logits = self._model.score(states)
        scores: list[float] = self._pick(logits.float()).tolist()
        return scores

    def _is_causal(self) -> bool:
        """Whether a later token changes no earlier state: tried, since no setting says it for all kinds of models."""
        rows = torch.tensor([[0, 1, 0], [0, 1, 1]], device=self._compute.device)
        with self._compute.autocast(), transformers_attention(self._model):
            states = self._model.base_model(input_ids=rows, use_cache=False).last_hidden_state[:, :2].float()
        return bool(torch.allclose(states[0], states[1], atol=1e-4, rtol=1e-4))

    def _texts(self, episodes: Episodes) -> list[str]:
        if self._chat is not None:
            return self._chat(episodes)
        if self._settings.reads == "response":
            return episodes.responses
        return [prompt + response for prompt, response in zip(episodes.prompts, episodes.responses, strict=True)]

    def _encode(self, text: str, stopped: bool) -> _Text:
        encoded = self._tokenizer(text, truncation=False, verbose=False, add_special_tokens=self._chat is None)
        ids, types = encoded["input_ids"], encoded.get("token_type_ids") if self._takes_types else None
        if self._begins_twice(ids):
            ids, types = ids[1:], None if types is None else types[1:]
        eos, trained = self._tokenizer.eos_token_id, self._trained
        if trained is not None:  # a chat is closed also behind a response that was cut off
            eos, stopped = eos if trained.end_id is None else trained.end_id, stopped or trained.chat_template
        if self._settings.append_eos and stopped and eos is not None and ids[-1:] != [eos]:
            ids, types = [*ids, eos], None if types is None else [*types, *types[-1:]]
        uncut = ids or [eos or 0]
        ids = cut_left(uncut, self._longest, self._tokenizer)
        return _Text(ids, None if types is None else (types[len(types) - len(ids) :] or [0] * len(ids)), len(uncut))

    def _begins_twice(self, ids: list[int]) -> bool:
        """Whether a chat template wrote the beginning-of-text token that the tokenizer writes too. Training here leaves both."""
        return self._trained is None and ids[:2] == [self._tokenizer.bos_token_id] * 2

    def _alone(self, text: _Text) -> Tensor:
        self._model.config.get_text_config().pad_token_id = self._unused_id([text])
        return self._score_batch([text], None)

    def _score_batch(self, texts: list[_Text], pad: int | None) -> Tensor:
        longest = max(len(text.ids) for text in texts)
        inputs = {
            "input_ids": [text.ids + [pad or 0] * (longest - len(text.ids)) for text in texts],
            "attention_mask": [[1] * len(text.ids) + [0] * (longest - len(text.ids)) for text in texts],
        }
        types = [text.types for text in texts if text.types is not None]
        if len(types) == len(texts):
            inputs["token_type_ids"] = [own + [0] * (longest - len(own)) for own in types]
        with self._compute.autocast():
            output = self._model(**{name: torch.tensor(rows, device=self._compute.device) for name, rows in inputs.items()})
        return self._pick(output.logits.float()).cpu()

    def _score_packed(self, texts: list[_Text]) -> Tensor:
        row = pack_texts([text.ids for text in texts], self._compute.device)
        with self._compute.autocast(), attention_for(row):
            states = self._model.base_model(**row.model_inputs(), use_cache=False).last_hidden_state
            logits = self._model.score(row.predicting(states))
        return self._pick(logits.float()).cpu()

    def _pick(self, logits: Tensor) -> Tensor:
        if self._settings.output == "logit":
            return logits[:, self._label]
        return logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(dim=-1)[:, self._label]

    def _unused_id(self, texts: list[_Text]) -> int | None:
        return unused_id(self._model, [text.ids for text in texts], self._tokenizer.pad_token_id)


class RewardModels:
    """Asks one reward model. Kinds that ask several are made from this too."""

    def __init__(self, models: list[RewardModelScorer]):
        self.models = models

    def __call__(self, episodes: Episodes) -> Answer:
        """The model's scores."""
        return self.models[0].answer(episodes)


@scorer(RewardModelReward)
def build(settings: RewardModelReward, context: BuildContext) -> RewardModels:
    """Loads the model."""
    return RewardModels([load_scorer(settings, settings.model, context)])


def load_scorer(settings: ClassifierReward, name: str, context: BuildContext) -> RewardModelScorer:
    """Loads one model and its tokenizer. Raises :class:`ConfigError` that names the kind's own setting for models."""
    own = replace(context.compute, dtype=DTYPES.get(settings.dtype, context.compute.dtype), ranks=ONE_RANK)
    field = context.field
    try:
        loaded = load_reward_model(name, settings.revision, settings.label, own.dtype, context.report, field)
    except ConfigError as error:  # the loader calls the setting "model"; an ensemble's has another name
        problems = [
            Problem(f"{field}.{settings.models_setting}" if item.field == f"{field}.model" else item.field, item.message)
            for item in error.problems
        ]
        raise ConfigError(problems) from error
    return RewardModelScorer(name, loaded, settings, own, own_chat(loaded, name, settings, field))


def longest_text(model: PreTrainedModel) -> int | None:
    """Most tokens that the model has positions for, or None when it has no such limit.

    RoBERTa and its kin count positions from behind the pad id, so 514 of them hold 512 tokens.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return limit
