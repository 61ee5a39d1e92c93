"""``step`` of the classic trainer against TRL 0.11.4's own, on the same model, tokens and scores (data/trl_0_11_step.json)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rlhf_studio.trl as trl
import rlhf_studio.trl.experimental.ppo as experimental_ppo
import rlhf_studio.trl.trainer.utils as trainer_utils
from rlhf_studio.engine.loop import update
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer, create_reference_model, respond_to_batch
from rlhf_studio.trl.program.parts import keep_rates, learn_with
from tests.trl_programs.small_program import CASES, fill, make_model, make_step, make_tokenizer

VECTORS = json.loads((Path(__file__).parent / "data" / "trl_0_11_step.json").read_text(encoding="utf-8"))
Build = Callable[..., Any]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """A classic trainer on the tiny model; its recording ends with the test."""
    torch.set_num_threads(1)
    made = []

    def trainer(options: dict[str, Any], **arguments: Any) -> Any:
        model = AutoModelForCausalLMWithValueHead.from_pretrained(make_model(1))
        fill(model.v_head, 7, 0.2)
        reference = arguments.pop("ref_model", make_model(2))
        folder = tempfile.mkdtemp(dir=tmp_path)
        made.append(PPOTrainer(PPOConfig(**options), model, reference, make_tokenizer(), run_dir=folder, **arguments))
        return made[-1]

    yield trainer
    for one in made:
        one.close()


DAILY = ("kl", "full", "masked", "minibatches")


@pytest.mark.parametrize("case", [case if case in DAILY else pytest.param(case, marks=pytest.mark.long) for case in sorted(CASES)])
def test_a_step_gives_the_numbers_of_trl(build: Build, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Two steps, or one: each number by TRL's name, log-probabilities, KL, and the weights after it."""

    def in_order(episodes: int, epochs: int, size: int, generator: torch.Generator) -> Iterator[tuple[int, torch.Tensor]]:
        yield from ((epoch, rows) for epoch in range(epochs) for rows in torch.arange(episodes).split(size))

    monkeypatch.setattr(update, "shuffled_minibatches", in_order)
    trainer = build(CASES[case])
    for number, expected in enumerate(VECTORS[case]["steps"]):
        queries, responses, scores, masks = make_step(number, masked=case == "masked")
        stats = trainer.step(queries, responses, scores, response_masks=masks)
        ours = {name: stats[name] for name in expected["scalars"]}
        assert ours == pytest.approx(expected["scalars"], rel=1e-5, abs=1e-5)
        for row, theirs in enumerate(expected["logprobs"]):
            assert stats["objective/logprobs"][row, : len(theirs)] == pytest.approx(theirs, abs=1e-5)
        assert stats["objective/kl_dist"] == pytest.approx(expected["kl_dist"], abs=1e-5)
        assert trainer.kl_ctl.value == pytest.approx(expected["next_kl_coef"], rel=1e-6)
        state = trainer.model.state_dict()
        for name, theirs in expected["weights"].items():
            mine = state[name if name.startswith("v_head") else f"pretrained_model.{name}"]
            torch.testing.assert_close(mine, torch.tensor(theirs), rtol=1e-5, atol=1e-5)
    assert RunReader(trainer.run_dir).status().step == len(VECTORS[case]["steps"])


def test_a_programs_own_optimizer_and_schedule(build: Build) -> None:
    """TRL's Adam, given by the program, gives the same numbers; its schedule moves the rate after each step."""
    options = {**CASES["kl"], "learning_rate": 1.0}
    trainer = build(options)
    own = torch.optim.Adam([weight for weight in trainer.model.parameters() if weight.requires_grad], lr=CASES["kl"]["learning_rate"])
    learn_with(trainer.trainer, own)
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(own, lambda step: 0.5**step)
    keep_rates(own)
    first, second = (trainer.step(*make_step(number)[:3]) for number in range(2))
    expected = VECTORS["kl"]["steps"]
    assert first["ppo/loss/total"] == pytest.approx(expected[0]["scalars"]["ppo/loss/total"], abs=1e-5)
    assert second["objective/kl"] == pytest.approx(expected[1]["scalars"]["objective/kl"], abs=1e-5)
    assert (first["ppo/learning_rate"], second["ppo/learning_rate"]) == (3e-3, 1.5e-3)


def test_the_first_lines_that_people_try(tmp_path: Path) -> None:
    """The quick start of TRL 0.4: one query, one response, one reward, and no minibatch size."""
    with pytest.warns(UserWarning, match="mini_batch_size is not given; it is 1"):
        config = PPOConfig(batch_size=1)
    model, tokenizer = AutoModelForCausalLMWithValueHead.from_pretrained(make_model(1)), make_tokenizer()
    trainer = PPOTrainer(config, model, create_reference_model(model), tokenizer, run_dir=tmp_path / "run")
    query = tokenizer.encode("w1 w2 w3", return_tensors="pt").to(model.pretrained_model.device)
    response = respond_to_batch(model, query, txt_len=4)
    stats = trainer.step([query[0]], [response[0]], [torch.tensor(1.0)])
    assert stats["ppo/mean_scores"] == 1 and stats["tokens/responses_len_mean"] == 4
    trainer.close()
    assert RunReader(trainer.run_dir).status().state == "finished"


def test_names_are_found_where_programs_look_for_them() -> None:
    assert trl.core.LengthSampler is trl.LengthSampler and experimental_ppo.PPOTrainer is trl.PPOTrainer
    assert trainer_utils.SIMPLE_CHAT_TEMPLATE == trl.SIMPLE_CHAT_TEMPLATE and set(trl.__all__) == set(trl.NAMES)
    with pytest.raises(AttributeError, match="rlhf_studio.trl has no DPOTrainer: it has what TRL's PPO programs import"):
        trl.DPOTrainer  # noqa: B018
