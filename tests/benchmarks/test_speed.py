"""The speed benchmark: operations against hand counts and torch's own counter, ratios and medians against literals, and a tiny run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import report
from benchmarks.speed import __main__ as command
from benchmarks.speed import models, ours, ours_supervised, profile, recipe, rounds, summary
from benchmarks.speed.floor import Floor, floor
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps
from benchmarks.speed.models import Inputs
from benchmarks.speed.rounds import Outcome
from benchmarks.speed.workloads import SETTINGS, WORKLOADS

SMOKE = WORKLOADS["w0"]


def job(**changes: Any) -> Job:
    return Job(replace(SMOKE, **changes), Inputs("", "", "", "", {}), dict(SETTINGS), threads=1)


# --- the floor -----------------------------------------------------------------------------------------------------------------


def test_floor_of_w1_by_hand() -> None:
    # 64 prompts of 12 tokens on average and 32 new ones: 64 · 43 = 2752 are read to predict, 64 · 44 = 2816 to be scored, 2048 predicted.
    # Blocks: 4 · 12 · 256² = 3,145,728 weights; vocabulary: 4096 · 256 = 1,048,576.
    forward = 2 * (3_145_728 * 2752 + 1_048_576 * 2048)
    assert forward == 21_609_054_208
    counted = floor(WORKLOADS["w1"])
    assert counted.rollout == forward
    assert counted.scoring == forward + 17_716_740_096  # the reward model: 2 · 3,145,728 · 2816
    assert counted.optimisation == 4 * 3 * forward
    assert counted.total == 320_243_499_008
    assert counted.seconds(1e9) == pytest.approx(320.243499)


def test_floors_of_the_stages_by_hand() -> None:
    # w6: 64 texts of 12 + 32 tokens on average, 43 of each read, 32 predicted. Three products per weight and token, 2 operations each.
    assert floor(WORKLOADS["w6"]).total == 6 * (3_145_728 * 64 * 43 + 1_048_576 * 64 * 32)
    assert (floor(WORKLOADS["w6"]).rollout, floor(WORKLOADS["w6"]).scoring) == (0, 0)
    # w6-lora: frozen weights have two products; adapters of rank 16 on 12 layers have three.
    assert floor(WORKLOADS["w6-lora"]).total == 4 * (84_934_656 * 16 * 59 + 38_597_376 * 16 * 48) + 6 * 589_824 * 16 * 59
    # w7: 64 texts read whole, each scored once by 256 weights.
    assert floor(WORKLOADS["w7"]).total == 6 * (3_145_728 * 64 * 44 + 256 * 64)


def test_a_pass_costs_what_torch_counts() -> None:
    shape, batch, length = SMOKE.policy, 3, 7
    model = _model(shape)
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=torch.ones(batch, length, dtype=torch.long)).logits.sum()
        forward = _products(counter)
        loss.backward()
    expected = floor(replace(SMOKE, batch=batch, prompt=(0, 0), response=length, epochs=1))
    head = 2 * 128 * 32 * batch * length
    trunk_of_last = 2 * 2 * 12 * 32**2 * batch  # the floor does not read the response's last token
    assert forward == expected.rollout + trunk_of_last
    assert _products(counter) == 3 * forward
    assert expected.rollout - head == 2 * 2 * 12 * 32**2 * batch * (length - 1)


def _model(shape: Any) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(models.model_config(shape, 0))


def _products(counter: FlopCounterMode) -> int:
    """Matrix products with weights; attention's own products are not among them."""
    counts = counter.get_flop_counts()["Global"]
    return sum(number for operation, number in counts.items() if str(operation) in ("aten.mm", "aten.addmm"))


# --- laps, outcomes, ratios ----------------------------------------------------------------------------------------------------


def result(totals: list[float], tokens: float = 32.0) -> dict[str, Any]:
    updates = [{"total": t, "rollout": t / 2, "scoring": t / 8, "optimisation": t / 4, "rest": t / 8} for t in totals]
    more = {"matrix_rates": [1e9, 3e9], "peak_resident": 5e8, "peak_gpu": None, "threads": 1, "device": "cpu", "versions": {"torch": "2"}}
    return {"updates": updates, "tokens": [tokens] * len(totals), **more}


def test_laps_give_the_rest_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0, 25.0])
    monkeypatch.setattr("benchmarks.speed.meter.time.perf_counter", lambda: next(clock))
    laps = Laps()
    laps.start()
    laps.add("rollout", 3.0)
    laps.add("scoring", 1.0)
    laps.add("scoring", 1.5)
    laps.start()  # ends the first at 10
    laps.stop()
    assert laps.updates[0] == {"total": 10.0, "rollout": 3.0, "scoring": 2.5, "optimisation": 0.0, "rest": 4.5}
    assert laps.updates[1]["total"] == 5.0


def test_a_timed_function_opens_updates_and_returns_its_result() -> None:
    laps = Laps()
    double = laps.timed("rollout", lambda x, *, plus: 2 * x + plus, opens=True)
    assert double(3, plus=1) == 7
    assert double(4, plus=0) == 8
    laps.stop()
    assert len(laps.updates) == 2
    assert all(0 < update["rollout"] <= update["total"] for update in laps.updates)


def test_outcome_is_the_median_without_the_warm_up() -> None:
    one = rounds.outcome("ours", job(updates=3), result([99.0, 4.0, 2.0, 3.0]))
    assert one.seconds == {"total": 3.0, "rollout": 1.5, "scoring": 0.375, "optimisation": 0.75, "rest": 0.375}
    assert one.spread == (2.0, 4.0)
    assert one.episodes == pytest.approx(8 / 3)
    assert one.tokens == pytest.approx(32 / 3)
    assert one.matrix_rate == 2e9


def test_a_contestant_that_did_less_is_refused() -> None:
    with pytest.raises(ValueError, match="did 2 updates instead of 3"):
        rounds.outcome("trl-1.12", job(), result([1.0, 1.0]))
    with pytest.raises(ValueError, match="instead of 32"):
        rounds.outcome("trl-1.12", job(), result([1.0, 1.0, 1.0], tokens=31.0))


def test_every_second_round_goes_the_other_way_round() -> None:
    assert [rounds.order(["a", "b", "c"], number) for number in range(3)] == [["a", "b", "c"], ["c", "b", "a"], ["a", "b", "c"]]


def outcome_of(name: str, total: float, peak: float = 1e9, rate: float | None = 2e9) -> Outcome:
    seconds = {"total": total, "rollout": total / 2, "scoring": total / 4, "optimisation": total / 4, "rest": 0.0}
    return Outcome(name, seconds, (total, total), 8 / total, 32 / total, peak, None, rate, 1, "cpu", {})


def test_ratios_are_taken_round_by_round() -> None:
    played = [
        [outcome_of("ours", 1.0), outcome_of("trl-1.12", 4.0, 3e9)],
        [outcome_of("ours", 2.0), outcome_of("trl-1.12", 6.0, 2e9)],
        [outcome_of("ours", 4.0, rate=1e9), outcome_of("trl-1.12", 8.0, 4e9)],
    ]
    found = summary.summarise(job(), played, Floor(1e9, 1e9, 2e9))
    ratio = found["ratios"]["trl-1.12"]
    assert ratio["per_round"] == [4.0, 3.0, 2.0]
    assert (ratio["median"], ratio["min"], ratio["max"]) == (3.0, 2.0, 4.0)
    assert ratio["phases"] == {"rollout": 3.0, "scoring": 3.0, "optimisation": 3.0}
    assert ratio["memory"]["median"] == 3.0
    assert found["contestants"]["ours"]["seconds"]["total"] == 2.0
    # 4 GFLOP take 2 s at 2 GFLOP/s and 4 s at 1: half, once and once the floor.
    assert found["floor"]["distance"] == {"median": 1.0, "min": 0.5, "max": 1.0}
    assert found["floor"]["seconds"] == 2.0
    text = "\n".join(summary.lines(found))
    assert "trl-1.12 / ours: 3.00 (2.00 to 4.00)" in text
    assert "ours takes 1.00 times that (0.50 to 1.00)" in text


# --- the command ---------------------------------------------------------------------------------------------------------------


# --- a real run ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    torch.set_num_threads(1)
    workload = replace(SMOKE, updates=1)
    return command.workload_job(workload, threads=1, cache=tmp_path_factory.mktemp("speed"))


def test_our_contestant_does_what_it_is_told(real_job: Job, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    real_job.write(path)
    assert Job.read(path) == real_job
    laps, tokens = ours.measure(real_job)
    assert tokens == [32.0, 32.0]
    for update in laps.updates:
        assert min(update.values()) > 0
        assert update["total"] == pytest.approx(sum(update[phase] for phase in ("rollout", "scoring", "optimisation", "rest")))


@pytest.mark.parametrize("stage", ["reward_model"])
def test_our_contestant_trains_a_stage(stage: str, tmp_path: Path) -> None:
    workload = replace(SMOKE, stage=stage, completion=(2, 5), updates=1)
    told = command.workload_job(workload, threads=1, cache=tmp_path)
    told.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == told
    laps, tokens = ours_supervised.measure(told)
    rows = json.loads(Path(told.inputs.ids).read_text(encoding="utf-8"))
    assert len(rows) == 16 and {len(row) for row in rows} == {2 if stage == "sft" else 3}
    assert {len(row[0]) for row in rows} == {2, 3, 4} and {len(part) for row in rows for part in row[1:]} == {2, 3, 4, 5}
    assert sum(tokens) == sum(len(row[0]) * (len(row) - 1) + sum(map(len, row[1:])) for row in rows)
    assert [update["optimisation"] for update in laps.updates] == [update["total"] for update in laps.updates]
    found = rounds.outcome("ours", told, {**result([1.0, 2.0]), "updates": laps.updates, "tokens": tokens})
    assert found.tokens == pytest.approx(tokens[1] / laps.updates[1]["total"])


def test_prompts_are_the_same_ids_for_everybody(real_job: Job) -> None:
    with ours.running(ours.run_config(real_job)) as (trainer, _):
        batch = trainer.prompts.next_batch(SMOKE.batch)
        first = [row[keep].tolist() for row, keep in zip(batch.ids, batch.mask, strict=True)]
    assert first == json.loads(Path(real_job.inputs.ids).read_text(encoding="utf-8"))[: SMOKE.batch]


def test_a_profile_adds_up_operations_by_kind() -> None:
    times = [("aten::mm", 3.0, 2), ("aten::addmm", 1.0, 1), ("aten::mul_", 0.5, 4), ("_TanhGELU", 0.25, 1), ("aten::copy_", 0.25, 1)]
    found = profile.result(times, {"time/update": 4.0, "time/rollout": 1.5}, 5.5, "2.0")
    assert found["phases"] == {"rollout": 1.5, "update": 4.0}
    spent = {kind: seconds for kind, seconds in found["kinds"].items() if seconds}
    assert spent == {"matrix products": 4.0, "copies and gathers": 0.25, "arithmetic per element": 0.5, "between operations": 0.25}
    head, first, *_, last = profile.lines(found)
    assert head == "one update on one thread under the profiler: 5.50 s (rollout 1.50 s, update 4.00 s)"
    assert first.split() == ["80.0%", "matrix", "products"] and last.split() == ["250.0", "5.0%", "1", "aten::copy_"]
    table = report.profiles({"profile-w1": found | {"workload": "w1", "command": "c", "date": "d", "machine": {"cpu": "x", "cpus": 2}}})
    assert table[2] == "| w1 | 80.0 % | 0.0 % | 0.0 % | 0.0 % | 5.0 % | 10.0 % | 5.0 % |"


def test_the_recipe_is_told_to_the_peers_as_it_is(tmp_path: Path) -> None:
    from rlhf_studio.config.recipes import load_recipe

    config, told = load_recipe("world").config, recipe.make_job(tmp_path, threads=1)
    assert (told.workload.batch, told.workload.mini, told.workload.updates) == (64, 32, config.ppo.steps)
    assert told.settings["kl_coef"] == config.ppo.kl_coef
    assert told.settings["cliprange_value"] == recipe.NO_VALUE_CLIP
    assert told.inputs.marks["eos_token"]
    assert len(json.loads(Path(told.inputs.ids).read_text(encoding="utf-8"))) > 100
