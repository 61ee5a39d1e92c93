"""After training: LoRA merged, scores normalised on reference samples, the model saved with its measurements; ensembles."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.analysis.reward_model.pairs import normalised_record
from rlhf_studio.engine.models.classifiers import last_token_logits, normalise_scores
from rlhf_studio.engine.models.merging import merged_for_good
from rlhf_studio.inputs.models.reward_models import (
    ENSEMBLE_FILE,
    MEASURED_FILE,
    REWARD_FILE,
    Normalisation,
    RewardFile,
    describe_reward_model,
)
from rlhf_studio.language import S_

BATCH = 64
Record = Mapping[str, Any]
"""What a measurement has recorded, plain data."""
ONLY_HERE = """This reward model was trained with RLHF Studio. Its score head has a hidden layer (see reward_model.json), which the sequence
classifiers of transformers do not have. Load it with RLHF Studio: name this folder as the model of a reward. Plain transformers refuses it,
because score.weight has another shape than its own head.
"""


def merged_reward_model(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The plain classifier: with LoRA, a copy whose adapters are added into the weights; else the model itself.

    Raises ValueError when the merged copy is not the same function beyond rounding.
    """
    if not isinstance(model, PeftModel):
        return model
    adapted = copy.deepcopy(model).eval()
    return merged_for_good(adapted)


def normalise(model: PreTrainedModel | PeftModel, rows: Sequence[Sequence[int]], source: str) -> Normalisation:
    """Shift and scale the model's scores so that ``rows`` of token ids score with mean 0 and variance 1.

    LoRA must be merged before: the shift may go into a layer that no adapter has. Returns mean and deviation of the scores before.
    Raises ValueError when there are fewer than two rows, or when their scores do not vary.
    """
    if isinstance(model, PeftModel):
        raise ValueError(S_("merge the adapters before the scores are normalised"))
    if len(rows) < 2:
        raise ValueError(S_(f"scores are normalised over at least two responses, and there are {len(rows)}"))
    mean, std = normalise_scores(model, score_rows(model, rows))
    return Normalisation(len(rows), mean, std, source)


@torch.no_grad()
def score_rows(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Scores float32 (N,) on the CPU of rows of token ids. Dropout is off; rows of like length go together."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    scores = torch.empty(len(rows))
    try:
        for first in range(0, len(order), BATCH):
            part = order[first : first + BATCH]
            scores[part] = last_token_logits(model, [rows[row] for row in part], None)[:, 0].cpu()
    finally:
        model.train(was_training)
    return scores


def save_reward_model(
    model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, folder: Path, saved: RewardFile, measured: Record | None = None
) -> None:
    """Write an ordinary transformers folder with ``reward_model.json`` beside the weights, and ``measured.json`` where the model was
    measured. A folder that exists is replaced when the new one is complete. Raises OSError.
    """
    if isinstance(model, PeftModel):
        raise ValueError(S_("merge the adapters before the reward model is saved"))
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    (temporary / REWARD_FILE).write_text(saved.text(), encoding="utf-8")
    if measured is not None:
        (temporary / MEASURED_FILE).write_text(json.dumps(measured, allow_nan=False) + "\n", encoding="utf-8")
    if saved.head == "hidden":
        (temporary / "README.md").write_text(ONLY_HERE, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)


def finish_reward_model(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    head: RewardFile,
    rows: Sequence[Sequence[int]],
    source: str,
    folder: Path,
    measured: Record | None = None,
) -> RewardFile:
    """Merge, normalise over ``rows`` (none: leave the scores as they are) and save. Returns what ``reward_model.json`` says.

    A model without LoRA is changed in place by the normalising. ``measured`` is the record of a measurement before the
    normalising; it is saved with the scores converted to those after it. Raises ValueError and OSError.
    """
    plain = merged_reward_model(model)
    saved = replace(head, normalised=normalise(plain, rows, source) if rows else None)
    if measured is not None and saved.normalised is not None:
        measured = normalised_record(measured, saved.normalised.mean, saved.normalised.std)
    save_reward_model(plain, tokenizer, folder, saved, measured)
    return saved


def member_folder(folder: Path, member: int) -> Path:
    """Where a member of an ensemble in ``folder`` is saved; members are counted from 0."""
    return folder / f"member-{member + 1}"


def save_ensemble(folder: Path, members: Sequence[Path]) -> None:
    """Write what makes ``folder`` an ensemble of reward models: the reward kind ``ensemble`` takes it as one name.

    The members lie inside the folder. Raises ValueError for fewer than two, or for one that lies elsewhere.
    """
    if len(members) < 2:
        raise ValueError(S_(f"an ensemble has at least two members, and there are {len(members)}"))
    names = [member.relative_to(folder).as_posix() for member in members]
    temporary = folder / f".{ENSEMBLE_FILE}.part"
    temporary.write_text(json.dumps({"format": 1, "members": names}, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, folder / ENSEMBLE_FILE)


def gather_ensemble(folder: Path, models: Sequence[Path]) -> None:
    """Copy finished reward models, for instance of runs that differ in their seed, into a new ensemble in ``folder``.

    Raises ValueError for fewer than two, for a model that is there twice or reads its texts unlike the first one, and for a folder that
    exists; :class:`ModelError` for one that is no reward model; OSError.
    """
    if len({model.resolve() for model in models}) < max(2, len(models)):
        raise ValueError(S_("an ensemble has at least two members, and each counts once"))
    if folder.exists():
        raise ValueError(S_(f"{folder} exists already; choose another folder"))
    descriptions = [describe_reward_model(str(model)) for model in models]
    if unlike := next((other for other in descriptions if other.append_eos != descriptions[0].append_eos), None):
        raise ValueError(
            S_(f"{unlike.name} and {descriptions[0].name} differ in whether texts end with an end token, so they cannot be scored together")
        )
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    for number, model in enumerate(models):
        shutil.copytree(model, member_folder(temporary, number))
    save_ensemble(temporary, [member_folder(temporary, number) for number in range(len(models))])
    os.replace(temporary, folder)
