"""Lanes change how fast a CPU works, not what comes out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlhf_studio.config import EngineConfig
from rlhf_studio.engine.compute.lanes import ONE_LANE, Lanes, balanced_parts, lanes_for_this_cpu
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.loop.update import Updater
from rlhf_studio.inputs.estimate.cpu import least_rows
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import gradient_copies
from tests.engine.conftest import play
from tests.engine.learning import backward

LORA = {"enabled": True, "r": 2, "alpha": 4}


def test_results_come_in_order_and_lanes_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def work(number: int) -> tuple[int, bool]:
        if number < 2:
            meeting.wait()  # nobody passes alone
        return number * number, torch.is_grad_enabled()

    with torch.no_grad():
        assert Lanes(2).map(work, range(4)) == [(0, False), (1, False), (4, False), (9, False)]
    assert ONE_LANE.map(lambda number: threading.current_thread(), [1, 2]) == [threading.current_thread()] * 2


def test_a_failure_in_a_lane_is_raised_when_all_have_ended_and_the_thread_count_is_back() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise ArithmeticError("the first")
        done.append(number)

    before = torch.get_num_threads()
    with pytest.raises(ArithmeticError, match="the first"):
        Lanes(2).map(work, range(4))
    assert sorted(done) == [1, 2, 3] and torch.get_num_threads() == before


def test_parts_are_balanced_back_and_forth() -> None:
    assert balanced_parts([1, 2, 3, 4, 5], 2) == [[1, 4, 5], [2, 3]]
    assert balanced_parts([1, 2], 3) == [[1], [2]]


@pytest.mark.parametrize(("rows", "most", "expected"), [(64, 64, 32), (64, 16, 8), (15, 64, 15), (16, 64, 8), (64, 1, 1)])
def test_parts_in_flight_are_no_more_than_a_micro_batch(rows: int, most: int, expected: int) -> None:
    assert Lanes(2).rows_per_part(rows, most) == expected


def test_no_more_are_under_way_where_lanes_outnumber_the_parts_that_few_rows_are_worth() -> None:
    """16 rows are worth two lanes, but all four take a part when there are four: 4 rows in each were twice the 8 that may be under way."""
    under_way = [min(4, math.ceil(16 / size)) * size for size in (Lanes(4).rows_per_part(16, most) for most in (4, 8, 15))]
    assert all(rows <= most for rows, most in zip(under_way, (4, 8, 15), strict=True))


def test_lanes_at_work_share_the_threads_and_few_rows_are_no_lane() -> None:
    torch.set_num_threads(8)
    assert Lanes(4).map(lambda _: torch.get_num_threads(), range(2)) == [4, 4]
    assert Lanes(4).map(lambda _: torch.get_num_threads(), range(5)) == [2] * 5
    assert Lanes(4).map(lambda _: torch.get_num_threads(), [0]) == [8] and torch.get_num_threads() == 8
    assert [Lanes(4).rows_per_part(rows, rows, least=16) for rows in (16, 31, 32, 64, 128)] == [16, 31, 16, 16, 32]


def test_a_few_rows_of_a_large_model_are_a_lane_unless_most_of_it_learns() -> None:
    """A minibatch of eight, with LoRA on 135 million weights, is divided among two lanes; each would hold all gradients without LoRA."""
    large, small = 135_000_000, 1_200_000
    assert [least_rows(*model) for model in ((large,), (large, 900_000), (large, large), (small, 20_000))] == [2, 2, 8, 8]
    assert [Lanes(2).rows_per_part(8, 8, least_rows(large, learning)) for learning in (900_000, large)] == [4, 8]
    assert gradient_copies(8, 8, EngineConfig(threads=2), Device("cpu", "CPU", None, None, False), least_rows(large, 900_000)) == 2


def test_there_are_as_many_lanes_as_threads_up_to_four() -> None:
    for threads, lanes in ((1, 1), (3, 3), (9, 4)):
        torch.set_num_threads(threads)
        assert lanes_for_this_cpu().count == lanes


def with_lanes(trainer: Trainer, count: int) -> None:
    """Let the trainer work in ``count`` lanes."""
    trainer.compute = replace(trainer.compute, lanes=Lanes(count))
    trainer.models = replace(trainer.models, compute=trainer.compute)
    trainer.updater = Updater(trainer.models.policy, trainer.config, trainer.compute)
    for component in trainer.models.scorer.components:
        component.source._compute = trainer.compute


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("changes", [{"lora": LORA}, {"critic": {"kind": "separate"}}], ids=["lora", "critic"])
def test_two_lanes_give_what_one_gives(make_trainer: Callable[..., Trainer], changes: dict) -> None:
    actual = []
    for count in (1, 2):
        ppo = {"batch_size": 32, "mini_batch_size": 32, "ppo_epochs": 1, "max_grad_norm": 0.0}
        trainer = make_trainer(
            ppo=ppo,
            engine={"record_samples": 20, "watch_prompts": 2},
            generation={"response_length": 6, "response_length_min": 2},
            **changes,
        )
        with_lanes(trainer, count)
        rollout = play(trainer, size=32)
        index = torch.arange(32)
        backward(trainer, rollout, index)
        actual.append((rollout, trainer.updater.gradients.present(), trainer.watched()[0]))
    (one, gradients, watched), (two, others, watched_again) = actual
    assert torch.equal(one.tokens.response_ids[one.tokens.mask], two.tokens.response_ids[two.tokens.mask])
    assert torch.equal(one.tokens.mask, two.tokens.mask) and one.responses == two.responses
    for answer, again in zip(watched, watched_again, strict=True):
        assert (answer.response, answer.score) == (again.response, again.score)
        for name, array in answer.arrays.items():
            np.testing.assert_allclose(again.arrays[name], array, atol=1e-5, rtol=1e-5)
    for name in ("logprobs", "ref_logprobs", "values", "entropy", "rewards", "advantages"):
        torch.testing.assert_close(getattr(two, name), getattr(one, name), atol=1e-5, rtol=1e-5)
    mask = one.tokens.mask[:20]
    for ours, theirs in ((one.top, two.top), (one.ref_top, two.ref_top)):
        assert torch.equal(ours.ids[mask], theirs.ids[mask])
        torch.testing.assert_close(theirs.logprobs[mask], ours.logprobs[mask], atol=1e-5, rtol=1e-5)
    assert len(gradients) == len(others)
    for ours, theirs in zip(gradients, others, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(ours.norm()) + 1e-8


def test_lanes_repeat_themselves_bit_for_bit(make_trainer: Callable[..., Trainer]) -> None:
    weights = []
    for _ in range(2):
        trainer = make_trainer(ppo={"batch_size": 32, "mini_batch_size": 32, "micro_batch_size": 8})
        with_lanes(trainer, 2)
        trainer.step()
        weights.append(torch.cat([weight.flatten() for weight in trainer.models.policy.parameters()]))
    assert torch.equal(*weights)
