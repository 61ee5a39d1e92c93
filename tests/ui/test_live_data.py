"""What the page is told: thinning, columns, and payloads of hostile texts and broken numbers."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.runs.pace import step_seconds
from rlhf_studio.runs.records import (
    CheckpointInfo,
    Origin,
    RolloutRecord,
    RunStatus,
    SettingChange,
    StoredEvent,
    TokenRecord,
    WatchRecord,
)
from rlhf_studio.ui.live import payloads, responses
from tests.ui.fake_run import HOSTILE


def status(**changes) -> RunStatus:
    known = dict(  # noqa: C408
        run_id="20261121-000000-abcdef", name="world", recipe="world", state="running", phase="Sampling", fraction=None, step=3,
        total_steps=60, created_at=1.0, started_at=2.0, ended_at=None, heartbeat_age=0.4, epoch=0, seq=9, device="cpu", cause="", pid=7,
    )  # fmt: skip
    return RunStatus(**{**known, **changes})


def test_thinning_keeps_short_series_as_they_are():
    x, y = np.arange(1200), np.random.default_rng(0).normal(size=1200)
    assert list(payloads.thin_rows(y)) == list(x)


@pytest.mark.parametrize("count", [1201, 2001, 2500, 4000, 99_999])
def test_thinning_keeps_spikes_ends_and_the_limit(count):
    values = np.sin(np.arange(count) / 50)
    values[count // 3], values[2 * count // 3] = 40.0, -40.0
    x = payloads.thin_rows(values)
    y = values[x]
    assert len(x) <= 1200 and len(x) > 550
    assert list(x) == sorted(set(x)) and x[-1] == count - 1 and y[-1] == values[-1]
    assert y.max() == 40.0 and y.min() == -40.0


def test_thinning_of_nothing_but_nan_keeps_the_last_point():
    assert list(payloads.thin_rows(np.full(5000, np.nan))) == [4999]


def test_columns_keep_steps_and_fill_gaps_with_nan():
    series = payloads.Series()
    series.append([(1, {"a": 1.0}), (2, {"a": None, "b": 5.0}), (4, {"b": math.inf})])
    assert list(series.steps()) == [1, 2, 4] and series.last_step == 4 and series.names == ["a", "b"]
    np.testing.assert_array_equal(series.column("a"), np.array([1, np.nan, np.nan], np.float32))
    np.testing.assert_array_equal(series.column("b", after=1), np.array([5, np.nan], np.float32))
    assert np.isnan(series.column("unknown")).all()


def test_a_frozen_view_is_left_alone_by_later_rows_and_growth():
    series = payloads.Series()
    series.append((step, {"a": float(step)}) for step in range(1, 11))
    frozen = series.freeze()
    series.append((step, {"a": -1.0, "new": 2.0}) for step in range(11, 1000))
    assert frozen.last_step == 10 and frozen.names == ["a"]
    assert list(frozen.column("a")) == [float(step) for step in range(1, 11)]
    assert series.last_step == 999 and len(series.steps(after=500)) == 499


def test_the_payload_sends_equal_steps_once_and_nan_as_null():
    series = payloads.Series()
    series.append([(1, {"a": 1.0, "b": None}), (2, {"a": math.nan, "b": 2.0})])
    sent = json.loads(payloads.encode_numbers(series.payload()))
    assert sent == {"names": ["a", "b"], "x": [[1, 2]], "at": [0, 0], "y": [[1.0, None], [None, 2.0]]}


def test_only_wanted_metrics_are_sent():
    series = payloads.Series()
    series.append([(1, {"a": 1.0, "b": 2.0, "c": 3.0})])
    sent = json.loads(payloads.encode_numbers(series.payload(accepts=lambda name: name != "b")))
    assert sent["names"] == ["a", "c"] and sent["y"] == [[1.0], [3.0]]


def test_numbers_are_sent_with_six_significant_digits():
    values = np.array([0.0, 123456.7, -0.000123456789, np.nan, np.inf, -3.7e-17, 2e-9], np.float64)
    np.testing.assert_allclose(payloads.rounded(values), [0.0, 123457.0, -0.000123457, np.nan, np.inf, 0.0, 2e-9], rtol=1e-12)
    assert (
        payloads.encode_numbers(payloads.rounded(np.array([123456.7, 1.5e9, -0.000123456789]))) == b"[123457.0,1500000000.0,-0.000123457]"
    )
    assert len(payloads.encode_numbers(payloads.rounded(np.full(1, 1 / 3, np.float32)))) == len("[0.333333]")


def test_a_long_run_stays_small_on_the_wire():
    generator = np.random.default_rng(0)
    series = payloads.Series()
    series.append((step, {"a": float(generator.normal())}) for step in range(1, 20_001))
    assert len(payloads.encode_numbers(series.payload())) < 30_000


def test_stacked_phases_keep_the_same_steps():
    generator = np.random.default_rng(0)
    series = payloads.Series()
    for step in range(1, 5001):
        parts = {"time/rollout": float(generator.random()), "time/update": float(generator.random())}
        series.append([(step, {**parts, "time/total": sum(parts.values()), "time/elapsed": float(step)})])
    sent = series.payload()
    assert sent["at"][0] == sent["at"][1] == sent["at"][2] != sent["at"][3]


def test_a_long_run_is_sent_thinned_with_its_own_steps_per_series():
    series = payloads.Series()
    series.append((step, {"a": float(step % 7), "b": float(step)}) for step in range(1, 6001))
    sent = json.loads(payloads.encode_numbers(series.payload()))
    for name, at, values in zip(sent["names"], sent["at"], sent["y"], strict=True):
        steps = sent["x"][at]
        assert len(steps) == len(values) <= 1200, name
        assert steps[-1] == 6000


def test_status_mentions_silence_only_when_it_is_long_and_the_engine_alive():
    series = payloads.Series()
    assert payloads.status_payload(status(), series, [], {})["silent"] is None
    assert payloads.status_payload(status(heartbeat_age=31.7), series, [], {})["silent"] == 31
    assert payloads.status_payload(status(heartbeat_age=31.7, state="interrupted"), series, [], {})["silent"] is None
    assert payloads.status_payload(status(fraction=math.nan), series, [], {})["fraction"] is None


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (Origin(), ("studio", False, "", "tokens")),
        (Origin(program="lib.py"), ("program", True, "lib.py", "tokens")),
        (Origin(imported="a loop", controls=[], words=True), ("watched", True, "a loop", "words")),
        (Origin(imported="trl.jsonl"), ("log", True, "", "tokens")),
    ],
)
def test_status_says_who_trains_a_run_and_whether_it_is_only_read_here(origin, told):
    payload = payloads.status_payload(status(origin=origin), payloads.Series(), [], {})
    assert tuple(payload[name] for name in ("kind", "only_read", "trained_by", "unit")) == told


def test_settings_that_a_log_does_not_give_are_not_known_on_the_page():
    origin = Origin(imported="trl.jsonl", settings_known=False, settings_given=["ppo.cliprange"])
    payload = payloads.settings_payload(RunConfig(), origin=origin)
    assert [payload[name] for name in ("cliprange", "kl_estimator", "advantage")] == [RunConfig().ppo.cliprange, None, None]


def test_status_names_the_setting_that_a_failed_run_blames():
    cause = "reward component other: ppo.learning_rate: must be at most 1"
    payload_of = {
        state: payloads.status_payload(status(state=state, cause=cause), payloads.Series(), [], {}) for state in ("failed", "finished")
    }
    assert payload_of["failed"]["blamed"] == "ppo.learning_rate" and payload_of["finished"]["blamed"] == ""


def test_status_of_an_ended_run_sums_up_what_has_a_first_and_a_last():
    series = payloads.Series()
    series.append((step, {"objective/scores": float(step), "time/total": 2.0, "time/elapsed": 2.0 * step}) for step in range(1, 21))
    means = {"objective/scores": (1.5, 19.5), "gold/score": (None, None), "time/total": (2.0, 2.0)}
    payload = payloads.status_payload(status(state="finished"), series, [CheckpointInfo(20, "/x", 5, 1.0)], means)
    assert payload["first"] == {"objective/scores": 1.5, "time/total": 2.0}
    assert payload["last"] == {"objective/scores": 19.5, "time/total": 2.0}
    assert payload["step_seconds"] == 2.0 and payload["left"] == 114.0  # 57 steps are to come
    assert payload["worked"] == 40.0 and payload["checkpoints"] == [{"step": 20, "bytes": 5}]
    assert payloads.status_payload(status(), series, [], {})["first"] == {}
    single = payloads.Series()
    single.append([(1, {"objective/scores": 1.5})])  # of which nothing can be compared
    alone = payloads.status_payload(status(state="stopped"), single, [], {"objective/scores": (1.5, 1.5)})
    assert (alone["first"], alone["last"]) == ({}, {"objective/scores": 1.5})


def test_access_tokens_in_texts_are_blotted_out():
    secret = "hf_" + "Ab1" * 10
    assert secret not in without_secrets(f"GET https://x?token={secret} failed")
    assert secret not in payloads.status_payload(status(cause=f"401 for {secret}"), payloads.Series(), [], {})["cause"]
    rows = payloads.event_rows([StoredEvent(1, 0.0, 0, "info", "phase", f"with {secret}", {"token": secret})])
    assert secret not in json.dumps(rows)


def test_settings_give_the_target_only_when_the_controller_uses_it():
    assert payloads.settings_payload(RunConfig())["kl_target"] is None
    adaptive = RunConfig(ppo=PPOConfig(kl_controller="adaptive", kl_target=4.0, cliprange_high=0.3))
    payload = payloads.settings_payload(adaptive)
    assert payload["kl_target"] == 4.0 and payload["cliprange"] == 0.2 and payload["cliprange_high"] == 0.3


def test_steps_become_ranges():
    assert payloads.step_ranges([]) == []
    assert payloads.step_ranges([1, 2, 3, 7, 9, 10]) == [[1, 3], [7, 7], [9, 10]]


def rollout(pieces: list[str], value: float = 0.5) -> RolloutRecord:
    count = len(pieces)
    tokens = TokenRecord(
        prompt_ids=np.array([1], np.int32),
        response_ids=np.arange(count, dtype=np.int32),
        prompt_pieces=["p"],
        response_pieces=pieces,
        arrays={"rewards": np.full(count, value, np.float32)},
        top_ids=np.zeros((count, 5), np.int32),
        top_logprobs=np.zeros((count, 5), np.float32),
        ref_top_ids=np.zeros((count, 5), np.int32),
        ref_top_logprobs=np.full((count, 5), -np.inf, np.float32),
        top_pieces={0: "\ud800"},
        gamma=1.0,
        lam=0.95,
        kl_coef=0.1,
    )
    return RolloutRecord(0, "p", "".join(pieces), value, {"<b>": value}, None, value, count, True, tokens)


def test_hostile_texts_arrive_unchanged():
    payload = json.loads(responses.tokens_payload(3, rollout(HOSTILE)))
    assert payload["tokens"]["response_pieces"] == HOSTILE
    assert payload["tokens"]["pieces"] == [[0, "\ud800"]]
    table = json.loads(responses.samples_payload(3, [rollout(HOSTILE)], -1))
    assert table["rows"][0]["response"] == "".join(HOSTILE)
    watched = json.loads(responses.watched_payload([(0, WatchRecord(0, "p", text, 1.0, None)) for text in HOSTILE]))
    assert watched["rows"][0]["prompt"] == "p"


def test_numbers_that_are_not_finite_become_null():
    payload = json.loads(responses.tokens_payload(3, rollout(["a", "b"], math.nan)))
    assert payload["score"] is None and payload["kl"] is None and payload["parts"] == [["<b>", None]]
    assert payload["tokens"]["arrays"]["rewards"] == [None, None]
    assert payload["tokens"]["chances"]["ref_top"][0] == [0.0] * 5  # of -inf, where there are fewer than five tokens


def test_a_rollout_without_token_records_says_so():
    bare = rollout(["a"])
    bare = RolloutRecord(**{**bare.__dict__, "tokens": None})
    assert json.loads(responses.tokens_payload(3, bare))["tokens"] is None


def test_a_value_head_that_has_not_learned_does_not_move_the_middle_of_the_colours():
    """All values of the starting answer are 0. Around the mean of both answers, the starting answer would look worse and the newest
    better."""
    values = {"before": np.zeros(6, np.float32), "now": np.array([1.0, 2.0, 3.0], np.float32)}
    spans = responses.scales([{"values": array, "kl": array} for array in values.values()])
    assert spans["values"] == {"centre": 2.0, "limit": 1.0} and spans["kl"] == {"centre": 0.0, "limit": 3.0}
    both_flat = responses.scales([{"values": np.zeros(3)}, {"values": np.full(3, 4.0)}])
    assert both_flat["values"] == {"centre": 2.0, "limit": 2.0}
    assert responses.scales([{"values": np.array([5.0])}, {"values": np.array([1.0, 3.0])}])["values"]["centre"] == 3.0


class Records:
    """Stands in for a reader: (step, sample) -> arrays of a recorded response."""

    def __init__(self, arrays):
        self.records = {key: replace(rollout(["x"] * 3), sample=key[1]) for key in arrays}
        for key, record in self.records.items():
            self.records[key] = replace(record, tokens=replace(record.tokens, arrays=arrays[key]))

    snapshot = staticmethod(nullcontext)

    def rollout_steps(self):
        return sorted({step for step, _ in self.records})

    def rollouts(self, step_asked):
        return [record for (step, _), record in self.records.items() if step == step_asked]

    def rollout(self, step, sample):
        return self.records[step, sample]


def test_the_clearest_move_is_of_a_rewarded_token():
    def arrays(before, after, advantages, **more):
        return {"logprobs": np.log(before), "new_logprobs": np.log(after), "advantages": np.array(advantages), **more}

    small = arrays([0.5, 0.5, 0.5], [0.54, 0.5, 0.46], [9.0, 9.0, -9.0])  # less than 0.05
    against = arrays([0.5, 0.2, 0.5], [0.9, 0.7, 0.1], [-5.0, -5.0, 5.0])  # pulled along by other tokens
    whitened = arrays([0.1, 0.5, 0.5], [0.9, 0.5, 0.5], [8.0, 0.0, 0.0], whitened_advantages=np.array([-1.0, 0.0, 0.0]))
    broken = arrays([0.1, 0.5, 0.5], [0.9, 0.5, 0.5], [np.nan, np.inf, 0.0])
    good = arrays([0.5, 0.4, 0.3], [0.8, 0.7, 0.1], [1.0, 2.0, -9.0])  # 0.3 × 1 and 0.3 × 2; the last one was not rewarded
    recorded = {(1, 0): small, (1, 1): against, (2, 0): whitened, (2, 1): broken, (7, 3): good}
    assert responses.clearest_move(Records(recorded)) == {"token": {"step": 7, "sample": 3, "token": 1}}
    marked = Records(recorded)
    pieces = ["x", "<|endoftext|>", "x"]
    marked.records[7, 3] = replace(marked.records[7, 3], tokens=replace(marked.records[7, 3].tokens, response_pieces=pieces))
    assert responses.clearest_move(marked) == {"token": {"step": 7, "sample": 3, "token": 0}}  # a word, for a newcomer
    del recorded[7, 3]
    assert responses.clearest_move(Records(recorded | {(3, 0): {"logprobs": np.zeros(3)}})) == {"token": None}


def test_a_step_comes_with_the_tokens_of_the_response_that_is_shown_first():
    rows = [replace(rollout([text], score), sample=sample) for sample, text, score in ((0, "a", math.nan), (1, "b", 2.0), (2, "c", 2.0))]
    best, second, unknown = (json.loads(responses.samples_payload(3, rows, sample)) for sample in (-1, 2, 99))
    assert [row["sample"] for row in best["rows"]] == [0, 1, 2]
    assert best["chosen"] == json.loads(responses.tokens_payload(3, rows[1])) == unknown["chosen"]  # the best score, the first of two
    assert second["chosen"]["tokens"]["response_pieces"] == ["c"]
    fewer = json.loads(responses.samples_payload(3, [replace(rows[0], score=-1.0), replace(rows[1], tokens=None), rows[2]], -1))
    assert (fewer["chosen"]["sample"], [row["recorded"] for row in fewer["rows"]]) == (2, [True, False, True])
    assert json.loads(responses.samples_payload(3, [], -1))["chosen"] is None


def test_before_and_now_takes_the_first_and_the_newest_answer_of_each_prompt():
    def answer(sample, text):
        return WatchRecord(sample, f"prompt {sample}", text, 1.0, 0.5)

    rows = json.loads(
        responses.watched_payload([(5, answer(0, "mid")), (0, answer(0, "old")), (10, answer(0, "new")), (0, answer(1, "only"))])
    )["rows"]
    assert [row["before"]["response"] for row in rows] == ["old", "only"]
    assert [(row["now"]["step"], row["now"]["response"]) for row in rows] == [(10, "new"), (0, "only")]


def test_one_watched_answer_comes_with_the_list_of_all():
    kl = np.array([1.0, -2.0], np.float32)
    answers = [
        (step, WatchRecord(sample, "p", f"{sample} at {step}", 1.0, 0.5, arrays={"kl": sample * kl}))
        for step in (0, 5)
        for sample in (3, 4)
    ]
    first, other = (json.loads(responses.answer_payload(answers, sample)) for sample in (-1, 4))
    assert first["samples"] == other["samples"] == [3, 4]
    assert (first["sample"], first["before"]["response"], first["now"]["response"]) == (3, "3 at 0", "3 at 5")
    assert other["now"]["response"] == "4 at 5"
    assert first["scales"] == other["scales"] == {"kl": {"centre": 0.0, "limit": 8.0}}, "one colour is one number at all prompts"
    assert json.loads(responses.answer_payload([], -1)) == {"samples": []}
    assert "not watched" in json.loads(responses.answer_payload(answers, 5))["problem"]


def test_numbers_that_json_has_no_word_for_become_null_however_deep():
    encoded = payloads.encode_text({"x": math.nan, "rows": [{"y": (math.inf, 1.5, "Infinity")}]})
    assert json.loads(encoded) == {"x": None, "rows": [{"y": [None, 1.5, "Infinity"]}]}


def test_numbers_beyond_float32_are_gaps_and_the_mean_of_large_ones_is_a_number():
    series = payloads.Series()
    series.append([(1, {"time/total": 1e39, "a": -1e300}), (2, {"time/total": 3e38, "a": 1.0}), (3, {"time/total": 3e38})])
    assert step_seconds(series.column("time/total")) == pytest.approx(3e38)
    assert json.loads(payloads.encode_numbers(series.payload()))["y"][1] == [None, 1.0, None]


@pytest.mark.parametrize("new", [math.inf, math.nan, "1", None, True, [1], 10**400])
def test_a_stored_change_that_is_no_number_changes_nothing_on_the_page(new):
    before = RunConfig(ppo=PPOConfig(kl_controller="adaptive", kl_target=4.0))
    changes = [SettingChange(3, name, 1.0, new) for name in ("ppo.kl_coef", "ppo.kl_target", "ppo.unknown")]
    assert payloads.settings_payload(before, changes) == payloads.settings_payload(before)
