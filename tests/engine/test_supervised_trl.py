"""Loss and gradients of the supervised stages against TRL 1.12's own trainers, on the same batch with the same weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import ONE_LANE, Lanes
from rlhf_studio.engine.stages.dpo import DPOObjective
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.sft import LanguageModelObjective
from rlhf_studio.engine.stages.supervised.batch_passes import BatchPasses
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.inputs.examples.encoded import EncodedExample, EncodedPair
from tests.engine.small_models import config_of, save_tokenizer

pytest.importorskip("trl.trainer.sft_trainer", reason="trl 1.12 is not installed")

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
EXACT = 1e-5
ENDS = (1,)  # TRL ends every text with the end token
TEXTS = [((2, 3, 4), (5, 6, 7, 8)), ((9,), (10, 11)), ((12, 13, 14, 15, 16), (17,)), ((18, 19), (20, 21, 22, 23, 24, 25))]
PAIRS = [
    EncodedPair(prompt, chosen + ENDS, tuple(reversed(chosen)) + (26,) * number + ENDS, margin=0.25 * number)
    for number, (prompt, chosen) in enumerate(TEXTS)
]
EXAMPLES = [EncodedExample(prompt + done + ENDS, (-100,) * len(prompt) + done + ENDS) for prompt, done in TEXTS]


def make_model(family: str, labels: int = 0, seed: int = 0) -> Any:
    """A random model without dropout whose scores lie far apart."""
    torch.manual_seed(seed)
    config = config_of(family, 30)
    for name in vars(config):
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    config.initializer_range = 0.2
    if labels:
        config.num_labels = labels
        return AutoModelForSequenceClassification.from_config(config)
    return AutoModelForCausalLM.from_config(config)


def gradients(model: nn.Module) -> torch.Tensor:
    """All gradients of the trained weights as one vector, float64."""
    return torch.cat([parameter.grad.flatten().double() for parameter in model.parameters() if parameter.grad is not None])


def of_trl(trainer: Any, rows: list[dict[str, Any]]) -> tuple[float, torch.Tensor]:
    """TRL's loss of one batch, and its gradient."""
    model = trainer.model.train()
    model.zero_grad()
    loss = trainer.compute_loss(model, trainer.data_collator(rows))
    loss.backward()
    return float(loss.detach()), gradients(model)


@pytest.fixture(params=["packed in lanes", "packed in micro-batches", "padded"])
def of_ours(request: pytest.FixtureRequest) -> Callable[..., tuple[float, torch.Tensor]]:
    """Our loss and gradient, each way of computing them."""

    def run(model: Any, items: Sequence[Any], objective: TrainingObjective[Any]) -> tuple[float, torch.Tensor]:
        lanes = Lanes(2).with_one_row_each() if request.param == "packed in lanes" else ONE_LANE
        passes = BatchPasses(
            model, objective, Compute(CPU, torch.float32, lanes=lanes), 3 if request.param == "packed in micro-batches" else 8
        )
        assert passes.packs
        if request.param == "padded":
            passes.packs = False
            model.set_attn_implementation("sdpa")
        model.zero_grad()
        return passes.add_gradients(items).loss, gradients(model)

    return run


@pytest.fixture
def trainer_of(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes one of TRL's trainers with these options."""
    from datasets import Dataset

    tokenizer = save_tokenizer(tmp_path / "tokenizer")

    def make(kind: str, model: Any, columns: dict[str, list[Any]], **options: Any) -> Any:
        import trl

        quiet = {"report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True}
        config = getattr(trl, f"{kind}Config")(output_dir=str(tmp_path / "out"), max_length=None, **quiet, **options)
        more = {"ref_model": make_model("gpt2", seed=1)} if kind == "DPO" else {}
        return getattr(trl, f"{kind}Trainer")(
            model, args=config, train_dataset=Dataset.from_dict(columns), processing_class=tokenizer, **more
        )

    yield make


def agree(ours: tuple[float, torch.Tensor], theirs: tuple[float, torch.Tensor]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=EXACT)
    assert float((ours[1] - theirs[1]).norm() / theirs[1].norm()) < EXACT


def test_fine_tuning(trainer_of: Callable[..., Any], of_ours: Callable[..., Any]) -> None:
    rows = [{"input_ids": list(item.ids), "labels": list(item.labels)} for item in EXAMPLES]
    model = make_model("llama")
    ours = of_ours(copy.deepcopy(model), EXAMPLES, LanguageModelObjective())
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    agree(ours, of_trl(trainer_of("SFT", model, columns), rows))


def test_reward_model(trainer_of: Callable[..., Any], of_ours: Callable[..., Any]) -> None:
    rows = [
        {"chosen_ids": [*pair.prompt, *pair.chosen], "rejected_ids": [*pair.prompt, *pair.rejected], "margin": pair.margin}
        for pair in PAIRS
    ]
    model, centering = make_model("gpt2", labels=1), 0.01
    ours = of_ours(copy.deepcopy(model), PAIRS, BradleyTerryObjective(0, centering=centering))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    agree(ours, of_trl(trainer_of("Reward", model, columns, center_rewards_coefficient=centering), rows))


def test_dpo(trainer_of: Callable[..., Any], of_ours: Callable[..., Any]) -> None:
    rows = [{"prompt_ids": list(pair.prompt), "chosen_ids": list(pair.chosen), "rejected_ids": list(pair.rejected)} for pair in PAIRS]
    model, reference = make_model("gpt2"), make_model("gpt2", seed=1)
    ours = of_ours(copy.deepcopy(model), PAIRS, DPOObjective(0.3, reference=reference))
    texts = {"prompt": ["w1"], "chosen": [" w2"], "rejected": [" w3"]}
    agree(ours, of_trl(trainer_of("DPO", model, texts, beta=0.3), rows))
