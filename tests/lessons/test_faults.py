"""The faults of "Break it": each changes exactly what it says, none stays behind, and the engine has the one that a folder names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2ForSequenceClassification
from transformers.pytorch_utils import Conv1D

from rlhf_studio.cli.engine import one_engine
from rlhf_studio.config import NOTHING_ALLOWED
from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.lessons.faults import wrappers
from rlhf_studio.lessons.faults.names import NAMES, fault_of
from rlhf_studio.lessons.faults.pair import first_difference
from rlhf_studio.lessons.faults.wording import NOTICED
from rlhf_studio.ppo.losses import value_loss
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fault import EVENT, note_of, noted_fault
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config

# --- each changes exactly what it says ---------------------------------------------------------------------------------------


def test_the_score_stands_on_the_first_token() -> None:
    kl = torch.tensor([[0.5, 1.0, 2.0], [1.0, 3.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    scores = torch.tensor([10.0, -4.0])
    right = shape_rewards(kl, scores, mask, 0.1)
    wrong = wrappers.score_on_first_token(shape_rewards)(kl, scores, mask, 0.1)
    assert torch.allclose(right, torch.tensor([[-0.05, -0.1, 9.8], [-0.1, -4.3, 0.0]]))
    assert torch.allclose(wrong, torch.tensor([[9.95, -0.1, -0.2], [-4.1, -0.3, 0.0]]))


def test_the_value_loss_is_the_same_and_has_no_slope() -> None:
    values, returns, mask = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 2.5]]), torch.ones(1, 2, dtype=torch.bool)
    slopes = []
    for function in (value_loss, wrappers.without_slope(value_loss)):
        new = torch.tensor([[1.5, 2.0]], requires_grad=True)
        out = function(new, values, returns, mask, None)
        out.loss_sum.backward()
        assert out.loss_sum.item() == pytest.approx(((3 - 1.5) ** 2 + 0.5**2) / 2)
        slopes.append(new.grad.tolist() if new.grad is not None else None)
    assert slopes == [[[-1.5, -0.5]], [[0.0, 0.0]]]


def test_log_probabilities_forget_the_temperature() -> None:
    logits, ids = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 3, 6, 2, 2])
    expected = {tau: torch.log_softmax(logits / tau, dim=-1)[torch.arange(5), ids] for tau in (0.7, 1.0)}
    right, _ = consume_logits(logits.clone(), ids, 0.7)
    wrong, _ = wrappers.without_temperature(consume_logits)(logits.clone(), ids, 0.7)
    assert torch.allclose(right, expected[0.7], atol=1e-6)
    assert torch.allclose(wrong, expected[1.0], atol=1e-6)
    assert not torch.allclose(wrong, right, atol=1e-2)


def test_dropout_sets_a_tenth_to_zero_while_the_policy_learns_and_then_is_gone() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_proj, self.other = Conv1D(1000, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            projected: torch.Tensor = self.c_proj(x)
            return projected

    torch.manual_seed(0)
    block, x = Block().eval(), torch.randn(20, 4)
    plain, recorded = block(x), []

    def update(updater: Any, rollout: str, *, step: int) -> str:
        recorded.append(block(x))
        return f"{rollout} {step}"

    updater = SimpleNamespace(gradients=SimpleNamespace(_policy=block))
    assert wrappers.with_dropout(update)(updater, "learned", step=3) == "learned 3"
    is_left = recorded[0] != 0
    assert (~is_left).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert torch.allclose(recorded[0][is_left], plain[is_left] / 0.9)
    assert torch.equal(block(x), plain)
    with pytest.raises(ValueError, match="no layer that the fault dropout knows"), wrappers._dropout(nn.Linear(2, 2)):
        pass


def test_the_score_is_read_behind_the_padding() -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, n_positions=16, pad_token_id=0, eos_token_id=1, num_labels=1)
    model = GPT2ForSequenceClassification(config).eval()
    rows = [[5, 6, 7, 8, 2], [3, 4]]

    def last_columns(_scorer: Any, texts: list[Any]) -> list[float]:
        with torch.no_grad():
            return [model.score(model.transformer(torch.tensor([text.ids])).last_hidden_state[0, -1]).item() for text in texts]

    texts = [TextOf(ids) for ids in rows]
    scorer = SimpleNamespace(tokenizer=SimpleNamespace(eos_token_id=1))
    right, wrong = last_columns(scorer, texts), wrappers.score_behind_padding(last_columns)(scorer, texts)
    with torch.no_grad():  # an independent answer: the whole padded batch, and its last column
        padded = model.transformer(torch.tensor([rows[0], [3, 4, 1, 1, 1]])).last_hidden_state[:, -1]
        expected = model.score(padded).squeeze(1).tolist()
    assert wrong == pytest.approx(expected, abs=1e-6)
    assert wrong[0] == pytest.approx(right[0]) and wrong[1] != pytest.approx(right[1], abs=1e-4)
    assert [text.ids for text in texts] == rows


def TextOf(ids: list[int]) -> Any:
    """A text as the scorer holds it."""
    from rlhf_studio.engine.rewards.kinds.reward_model import _Text

    return _Text(list(ids), None, len(ids))


def test_nothing_stays_behind() -> None:
    def functions() -> list[Any]:
        every = [replaced for of_fault in wrappers.FAULTS.values() for replaced in of_fault]
        names = [(replaced.owner, replaced.name) for replaced in every]
        names += [(wrappers.stage.PPOStage, "build"), (wrappers.stage, "check_before_training")]
        names += [(wrappers.gate, "check_parity"), (wrappers.gate, "check_first_rollout")]
        return [vars(owner)[name] for owner, name in names]

    assert set(wrappers.FAULTS) == set(NAMES)
    before = functions()
    for fault in NAMES:
        with wrappers.applied(fault):
            replaced = [new is not old for new, old in zip(functions(), before, strict=True)]
            assert sum(replaced) == len(wrappers.FAULTS[fault]) + 4, fault
        assert all(new is old for new, old in zip(functions(), before, strict=True)), fault
        with pytest.raises(RuntimeError, match="on the way"), wrappers.applied(fault):
            raise RuntimeError("on the way")
        assert all(new is old for new, old in zip(functions(), before, strict=True)), fault


# --- the note in the folder --------------------------------------------------------------------------------------------------


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """A run folder on small random models, with a note of its fault; None for no note."""

    def make(name: str, fault: str | None, **changes: dict[str, Any]) -> Path:
        config = small_config(tmp_path, **changes)
        create_run(tmp_path / name, config, name=name, state="loading", files=None if fault is None else note_of(fault))
        return tmp_path / name

    return make


SHOWS = {"temperature": "kl", "dropout": "ratio", "pad_is_end": "rewards", "critic": "values", "reward_token": "rewards"}
REFUSED = {"temperature", "pad_is_end"}
COOL = {"generation": {"temperature": 0.7, "response_length": 6}}


def trained(folder: Path) -> RunReader:
    assert one_engine(folder, "train", NOTHING_ALLOWED, None) == DONE
    return RunReader(folder)


def test_the_engine_s_command_trains_with_the_fault_that_the_folder_names(make_run: Callable[..., Path]) -> None:
    ordinary, beside = trained(make_run("ordinary", None)), trained(make_run("beside", ""))
    for fault in NAMES:
        if fault == "temperature":
            healthy, broken = (trained(make_run(name, given, **COOL)) for name, given in (("cool", ""), (fault, fault)))
        else:
            healthy, broken = beside, trained(make_run(fault, fault))
        actual = first_difference(healthy, broken, SHOWS[fault])
        assert actual is not None, fault
        if fault == "reward_token":
            assert actual.position == 0
        if fault == "critic":
            assert actual.step == 2 and np.abs(actual.first[actual.position]) > np.abs(actual.second[actual.position])
        (event,) = [event for event in broken.newest_events() if event.kind == EVENT]
        assert event.level == "warning" and event.text.startswith("This run is broken on purpose") and event.data == {"fault": fault}
        refused = any(event.text.startswith(NOTICED) and event.level == "warning" for event in broken.newest_events())
        assert refused is (fault in REFUSED), fault
    for name in SHOWS.values():
        assert first_difference(ordinary, beside, name) is None
    for reader in (ordinary, beside):
        assert not [event for event in reader.newest_events() if event.kind == EVENT or event.text.startswith(NOTICED)]


def test_a_fault_that_there_is_not_is_no_silent_healthy_run(make_run: Callable[..., Path]) -> None:
    folder = make_run("odd", "no_such_fault")
    with pytest.raises(StoreError, match="names the fault 'no_such_fault', but there are only temperature, dropout"):
        one_engine(folder, "train", NOTHING_ALLOWED, None)
    assert RunReader(folder).status().step == 0


def test_a_note_that_cannot_be_read_stops_the_start(make_run: Callable[..., Path]) -> None:
    folder = make_run("damaged", "critic")
    for note in (b"", b"[]", b"{}", b'{"fault": 3}', b"\xff", b'"critic"', b"null"):
        (folder / paths.FAULT).write_bytes(note)
        with pytest.raises(StoreError) as refused:
            one_engine(folder, "train", NOTHING_ALLOWED, None)
        assert refused.value.reason == "damaged" and paths.FAULT in str(refused.value), note


def test_the_command_ends_with_the_sentence(make_run: Callable[..., Path]) -> None:
    folder = make_run("odd", "no_such_fault")
    done = subprocess.run([sys.executable, "-m", "rlhf_studio", "train", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == BAD_INPUT
    assert "names the fault 'no_such_fault'" in done.stderr + done.stdout + (folder / paths.LOG).read_text()


def test_notes(tmp_path: Path) -> None:
    assert noted_fault(tmp_path) is None and fault_of(tmp_path) == ""
    (tmp_path / paths.FAULT).write_bytes(note_of("")[paths.FAULT])
    assert noted_fault(tmp_path) == "" and fault_of(tmp_path) == ""
    (tmp_path / paths.FAULT).write_text(json.dumps({"fault": "critic"}))
    assert noted_fault(tmp_path) == fault_of(tmp_path) == "critic"
