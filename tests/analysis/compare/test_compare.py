"""Comparing runs whose numbers a test has made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.compare import compare, overlay, sweep_table
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter

Values = Callable[[int], float]


def run(
    folder: Path,
    gold: Values | None,
    *,
    name: str = "",
    steps: int = 20,
    seed: int = 0,
    scores: Values = lambda step: 0.0,
    changes: list[SettingChange] | None = None,
    watch: str = "Tell me:",
    origin: Origin | None = None,
    **settings: Any,
) -> RunReader:
    """A run with these values at each step; ``settings`` are sections of the configuration."""
    config = RunConfig.model_validate({"engine": {"seed": seed}, **settings})
    create_run(folder, config, name=name or folder.name, origin=origin)
    with RunWriter(folder) as writer:
        writer.watched(0, [WatchRecord(0, watch, "before", -1.0, None)])
        for step in range(1, steps + 1):
            metrics = {"objective/scores": scores(step), "objective/kl": 2.0} | ({"gold/score": gold(step)} if gold else {})
            answer = WatchRecord(0, watch, f"answer {step}", 1.0, 0.5, 3.0, True, [" an"], {"kl": np.array([np.nan, 0.1], np.float32)})
            writer.commit_step(StepRecord(step, metrics, [], [answer], changes=(changes or []) if step == 2 else []))
    return RunReader(folder)


def level(height: float, noise: float = 0.0, seed: int = 0) -> Values:
    drawn = np.random.default_rng(seed).normal(0, noise, 2000)
    return lambda step: height + float(drawn[step])


def test_two_settings_are_told_apart_with_figures_and_the_setting(tmp_path: Path) -> None:
    good = run(tmp_path / "b", level(0.81, 0.01), ppo={"kl_coef": 0.05}, scores=level(1.0))
    bad = run(tmp_path / "a", level(0.42, 0.01), ppo={"kl_coef": 0.0}, scores=level(3.0))
    comparison = compare([bad, good])
    assert comparison.verdict.startswith("“b” reaches a gold score of 0.8") and "against 0.4" in comparison.verdict
    assert comparison.verdict.endswith("at a KL of 2.00 against 2.00. They differ in KL coefficient (0.05 against 0).")
    assert [(row.setting, row.values) for row in comparison.settings] == [("ppo.kl_coef", [0.0, 0.05])]
    assert any("“a” is ahead, with 3.00 against 1.00 for “b”; the gold score says otherwise." in note for note in comparison.notes)
    assert any("more seeds" in note for note in comparison.notes)


def test_a_difference_that_chance_can_make_is_called_so(tmp_path: Path) -> None:
    noisy = [run(tmp_path / f"{seed}", level(0.5 + 0.001 * seed, 0.2, seed), ppo={"kl_coef": 0.1 * seed}) for seed in (1, 2)]
    verdict = compare(noisy).verdict
    assert "about the same gold score" in verdict and "the noise from step to step alone can make a difference of" in verdict


def test_a_run_that_goes_on_is_compared_at_the_last_step_that_all_have(tmp_path: Path) -> None:
    over = run(tmp_path / "over", lambda step: step / 10, steps=30, seed=1)
    going = run(tmp_path / "going", lambda step: step / 20, steps=9, seed=2)
    other = run(tmp_path / "other", lambda step: step / 5, steps=9, ppo={"kl_coef": 0.3})
    for reader in (over, other):
        with RunWriter(reader.run_dir) as writer:
            writer.set_state("finished")
    told = "So far, at step 9, the gold score is 0.90 for “over” and 0.45 for “going”."
    with EngineLock(going.run_dir), RunWriter(going.run_dir) as writer:
        writer.set_state("running")
        seeds, apart = compare([going, over]), compare([going, other])
    assert seeds.verdict == told
    assert "Not finished yet: “going”." in seeds.notes
    assert apart.verdict.startswith("So far, at step 9, the gold score is 1.80 for “other” and 0.45 for “going”. They differ in ")
    assert "chance" not in apart.verdict and not any("luck" in note for note in apart.notes)


def test_seeds_say_how_far_chance_goes(tmp_path: Path) -> None:
    def seeds(name: str, heights: list[float], kl_coef: float) -> list[RunReader]:
        return [run(tmp_path / f"{name}{n}", level(h), seed=n, ppo={"kl_coef": kl_coef}) for n, h in enumerate(heights)]

    wide = compare([*seeds("a", [0.3, 0.5, 0.7], 0.1), *seeds("b", [0.4, 0.6, 0.8], 0.2)])
    assert [group.runs for group in wide.groups] == [[0, 1, 2], [3, 4, 5]]
    # Pooled standard deviation 0.2, two means of three, 4 degrees of freedom: 2.78 * 0.2 * sqrt(2 / 3) = 0.45
    assert [group.label for group in wide.groups] == ["KL coefficient 0.1", "KL coefficient 0.2"]
    assert (
        "“KL coefficient 0.2” (3 seeds) and “KL coefficient 0.1” (3 seeds) end with about the same gold score, 0.60 against 0.50"
        in wide.verdict
    )
    assert "seeds alone can make a difference of 0.45" in wide.verdict
    narrow = compare([*seeds("c", [0.30, 0.31, 0.32], 0.1), *seeds("d", [0.40, 0.41, 0.42], 0.2)])
    assert narrow.verdict.startswith("“KL coefficient 0.2” (3 seeds) reaches a gold score of 0.41 against 0.31 for")
    alone = compare(seeds("e", [0.2, 0.4], 0.3))
    assert (
        alone.verdict
        == "2 seeds of the same settings end with a gold score of 0.30 on average (0.20 to 0.40), at a KL of 2.00 (2.00 to 2.00). "
        "They differ by 0.20, more than the 0.00 that the noise from step to step can make: the seed matters here."
    )
    assert [row.setting for row in alone.settings] == ["engine.seed"]
    noisy = [run(tmp_path / f"f{seed}", level(0.5 + seed / 50, 0.2, seed), seed=seed) for seed in (1, 2)]
    assert "no more than luck: the noise from step to step alone can make 0." in compare(noisy).verdict


def test_runs_of_one_seed_are_one_draw_of_luck(tmp_path: Path) -> None:
    """The same run twice does not make its setting any surer."""
    twice = [run(tmp_path / name, level(0.6, 0.2), name=name, ppo={"kl_coef": 0.2}) for name in ("x", "y")]
    comparison = compare([run(tmp_path / "a", level(0.5, 0.2, 1)), *twice])
    assert "“KL coefficient 0.2” (2 runs of one seed) and “a” end with about the same" in comparison.verdict
    assert "the noise from step to step alone" in comparison.verdict and any("more seeds" in note for note in comparison.notes)
    assert compare(twice).verdict.startswith("2 runs of the same settings and seed end with a gold score of 0.")


def test_a_group_of_seeds_is_called_by_what_its_runs_have_in_common(tmp_path: Path) -> None:
    def swept(name: str, kl_coef: float, seed: int) -> RunReader:
        return run(tmp_path / f"{kl_coef}{seed}", level(kl_coef), name=name, seed=seed, ppo={"kl_coef": kl_coef})

    names = ["β and seeds, kl_coef {}, seed {}", "world seed-{1}", "world (seed {1})"]
    comparison = compare([swept(names[0].format(kl, seed), kl, seed) for kl in (0.1, 0.2) for seed in (0, 1)])
    assert [group.label for group in comparison.groups] == ["β and seeds, kl_coef 0.1", "β and seeds, kl_coef 0.2"]
    both = compare([swept(name.format(0, seed), kl, seed) for kl, name in ((0.3, names[1]), (0.4, names[2])) for seed in (0, 1)])
    assert [group.label for group in both.groups] == ["world (KL coefficient 0.3)", "world (KL coefficient 0.4)"]


def scored(folder: Path, gold: float, score: float, noise: float, **settings: Any) -> RunReader:
    seeds = iter(range(10, 20))
    return run(folder, level(gold, noise, next(seeds)), scores=level(score, noise, next(seeds)), **settings)


@pytest.mark.parametrize(
    ("golds", "scores", "expected"),
    [
        ((0.5, 0.9), (2.0, 1.0), "the gold score says otherwise."),
        ((0.5, 0.51), (2.0, 1.0), "the gold score does not tell the two apart."),
        ((0.5, 0.9), (1.01, 1.0), ""),  # the score does not tell them apart
        ((0.9, 0.5), (2.0, 1.0), ""),  # both name the same
    ],
)
def test_the_score_speaks_against_gold_only_where_it_is_sure(
    golds: tuple[float, float], scores: tuple[float, float], expected: str, tmp_path: Path
) -> None:
    readers = [
        scored(tmp_path / str(number), gold, score, 0.1, ppo={"kl_coef": 0.1 * number})
        for number, (gold, score) in enumerate(zip(golds, scores, strict=True))
    ]
    notes = [note for note in compare(readers).notes if note.startswith("By the score")]
    assert len(notes) == bool(expected) and all(note.endswith(expected) for note in notes)


def test_the_score_says_nothing_of_runs_that_other_rewards_scored(tmp_path: Path) -> None:
    other = {"components": [{"kind": "length", "name": "length", "target": 20}]}
    readers = [scored(tmp_path / "a", 0.9, 1.0, 0.01), scored(tmp_path / "b", 0.5, 9.0, 0.01, reward=other)]
    assert not [note for note in compare(readers).notes if note.startswith("By the score")]


def test_what_differs_is_named_by_titles_and_without_bookkeeping(tmp_path: Path) -> None:
    bookkeeping = {"engine": {"seed": 1, "watch_every": 7, "threads": 1}}
    many = {"ppo": {"kl_coef": 0.2, "learning_rate": 1e-5, "lam": 0.9, "gamma": 0.99}, "generation": {"temperature": 0.7}}
    readers = [run(tmp_path / "a", level(-0.5, 0.001)), run(tmp_path / "b", level(-0.7, 0.001, 1), **many)]
    comparison = compare(readers)
    assert "a gold score of −0.50 against −0.70" in comparison.verdict
    assert comparison.verdict.endswith("They differ in learning rate, KL coefficient, discount γ and 2 more settings.")
    create_run(tmp_path / "c", RunConfig.model_validate({**bookkeeping, "reward": NAMED}), name="c")
    with RunWriter(tmp_path / "c") as writer:
        writer.commit_step(StepRecord(1, {"objective/scores": 0.0, "gold/score": 0.3}, [], []))
    twins = compare([readers[0], RunReader(tmp_path / "c")])
    assert len(twins.groups) == 1 and "scored differently" not in twins.verdict
    table = {"engine.watch_every", "engine.threads", "engine.seed", "reward.components.0.name"}
    assert {row.setting for row in twins.settings} == table


@pytest.mark.parametrize(
    ("settings", "other", "expected"),
    [
        (
            {"reward": {"components": [{"kind": "length", "target": 9}]}},
            {},
            "They differ in reward component 1 (reward_model against length).",
        ),
        ({"lora": {"enabled": True}}, {}, "They differ in train with LoRA (off against on)."),
        ({"model": {"policy": "/a/one"}}, {"model": {"policy": "/a/two"}}, "They differ in policy model (two against one)."),
        ({"model": {"policy": "/a/one"}}, {"model": {"policy": "/b/one"}}, "They differ in policy model (/b/one against /a/one)."),
    ],
)
def test_one_difference_is_told_with_its_values(settings: dict[str, Any], other: dict[str, Any], expected: str, tmp_path: Path) -> None:
    readers = [run(tmp_path / "a", level(0.5), **settings), run(tmp_path / "b", level(0.9), **other)]
    assert compare(readers).verdict.endswith(expected)


NAMED = {"components": [{**RunConfig().model_dump(mode="json")["reward"]["components"][0], "name": "another name"}]}


def test_logs_that_do_not_give_all_settings_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    """Their files of settings are alike, since what a log does not give has the program's default there."""

    def log(name: str, height: float, **given: Any) -> RunReader:
        origin = Origin(imported=f"{name}.jsonl", settings_known=False, settings_given=[f"ppo.{setting}" for setting in given])
        return run(tmp_path / name, None, scores=level(height), origin=origin, ppo=given)

    bare = compare([log("a", 0.1), log("b", 0.9)])
    assert [group.runs for group in bare.groups] == [[0], [1]] and bare.settings == []
    assert bare.verdict.startswith("These runs are not ranked, because it is not known whether the reward is the same: ")
    assert bare.verdict.endswith(": “a” went from 0.10 to 0.10 and “b” went from 0.90 to 0.90.")
    assert bare.one_scale == ["objective/kl"] and bare.metrics == ["objective/scores", "objective/kl"]
    assert [run.seed for run in bare.runs] == [None, None]
    assert [note for note in bare.notes if "are known" in note] == [
        "Not all settings are known of “a” and “b” (read from a log): such a run is not averaged with others, and a setting that is not "
        "known is shown as “–”."
    ]

    ours = run(tmp_path / "ours", None, seed=3, scores=level(0.5), ppo={"kl_coef": 0.2})
    seed = run(tmp_path / "seed", None, seed=4, scores=level(0.5), ppo={"kl_coef": 0.2})
    mixed = compare([ours, log("c", 0.1, kl_coef=0.2, steps=7), seed, log("d", 0.1, kl_coef=0.3)])
    assert [group.runs for group in mixed.groups] == [[0, 2], [1], [3]]
    assert {row.setting: [v if known else "–" for v, known in zip(row.values, row.known, strict=True)] for row in mixed.settings} == {
        "ppo.kl_coef": [0.2, 0.2, 0.2, 0.3],
        "ppo.steps": [60, 7, 60, "–"],
        "engine.seed": [3, "–", 4, "–"],
    }
    assert [run.settings_known for run in mixed.runs] == [True, False, True, False]
    assert [row.setting for row in mixed.settings if row.differs()] == ["ppo.steps", "ppo.kl_coef", "engine.seed"]


def test_runs_of_others_say_who_trains_them_and_share_no_cell(tmp_path: Path) -> None:
    """A watched loop, a log and a program that keeps its reward to itself: all three have the default reward in their files."""
    watched = Origin(imported="Python", settings_known=False, settings_given=["ppo.kl_coef"], controls=[])
    log = Origin(imported="verl.jsonl", settings_known=False, settings_given=["ppo.kl_coef"])
    bare, program = Origin(imported="board.jsonl", settings_known=False), Origin(program="lib.py")
    named = (("loop", watched, 0.05), ("verl", log, 0.05), ("board", bare, 0.5), ("mine", program, 0.1), ("ours", program, 0.1))
    readers = [
        run(tmp_path / name, None, scores=level(place), seed=place, origin=origin, ppo={"kl_coef": beta})
        for place, (name, origin, beta) in enumerate(named)
    ]
    comparison = compare(readers)
    assert [group.runs for group in comparison.groups] == [[0], [1], [2], [3], [4]]
    assert comparison.verdict.startswith("These runs are not ranked")
    (note,) = (note for note in comparison.notes if "settings are known" in note)
    assert "of “verl” and “board” (read from a log), “loop” (trained outside this app) and “mine” and “ours” (made by a program" in note

    table = sweep_table(readers[:4], "objective/kl")
    assert (table.settings, table.rows, table.left_out) == (["ppo.kl_coef"], [0.05, 0.1], [2])  # 0.5 is a default of ours
    shared, alone = (cell for (cell,) in table.cells)
    assert shared is not None and (shared.runs, shared.mean, shared.low) == ([0, 1], None, 2.0)
    assert alone is not None and (alone.runs, alone.mean) == ([3], 2.0)
    with pytest.raises(ValueError, match="not ranked, because it is not known whether the reward is the same"):
        sweep_table(readers[:4], "objective/scores")
    with pytest.raises(ValueError, match="do not differ in any that is known"):
        sweep_table([readers[0], readers[2]], "objective/kl")


def test_one_number_is_rounded_in_one_way_and_a_log_without_a_score_shows_its_parts(tmp_path: Path) -> None:
    create_run(tmp_path / "parts", RunConfig(), name="parts", origin=Origin(imported="c.parquet", settings_known=False, words=True))
    with RunWriter(tmp_path / "parts") as writer:
        writer.commit_step(StepRecord(1, {"reward/right": 0.25, "reward/form": 0.5}, []))
    comparison = compare([run(tmp_path / "a", None, scores=lambda step: 0.04 * step - 0.74), RunReader(tmp_path / "parts")])
    scored, parts = comparison.runs
    assert comparison.verdict.startswith(
        "One run: its score went from −0.70 in its first step to 0.04 in its last tenth"
    )  # (0.02 + 0.06) / 2
    assert (parts.last["reward/right"], parts.last["reward/form"], scored.last["reward/form"]) == (0.25, 0.5, None)
    assert (scored.unit, parts.unit) == ("tokens", "words") and "“parts” has recorded no score." in comparison.notes


def test_runs_that_were_scored_differently_are_not_ranked(tmp_path: Path) -> None:
    other = {"components": [{"kind": "length", "name": "length", "target": 20}]}
    readers = [run(tmp_path / "a", None, scores=level(5.0)), run(tmp_path / "b", None, scores=level(1.0), reward=other)]
    assert "scored differently, so their scores cannot be compared" in compare(readers).verdict


def test_live_changes_make_another_group_and_are_noted(tmp_path: Path) -> None:
    readers = [run(tmp_path / "a", level(0.5)), run(tmp_path / "b", level(0.5), changes=[SettingChange(2, "ppo.kl_coef", 0.05, 0.2)])]
    comparison = compare(readers)
    assert len(comparison.groups) == 2 and comparison.runs[1].changed == [(2, "ppo.kl_coef", 0.2)]
    assert "“b”: KL coefficient was changed to 0.2 at step 2, while it ran." in comparison.notes
    assert "They differ in what was changed while they ran" in comparison.verdict


def test_notes_name_runs_without_steps_and_of_other_lengths(tmp_path: Path) -> None:
    readers = [
        run(tmp_path / "a", level(0.5)),
        run(tmp_path / "b", level(0.2), steps=30, seed=1),
        run(tmp_path / "c", None, steps=0, seed=2),
    ]
    notes = compare(readers).notes
    assert "“c” has recorded nothing to compare yet." in notes
    assert any("from 20 to 30 steps" in note for note in notes)
    assert compare(readers[2:]).verdict == "None of these runs has recorded a step yet."


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    readers = [run(tmp_path / f"{n}", level(0.5), name="world", seed=n % 2, ppo={"kl_coef": 0.1 * (n // 2)}) for n in range(4)]
    comparison = compare(readers)
    assert [row.label for row in comparison.runs] == [f"world (seed {s}, KL coefficient {k})" for k in ("0", "0.1") for s in (0, 1)]
    assert [group.label for group in comparison.groups] == ["world (KL coefficient 0)", "world (KL coefficient 0.1)"]
    twins = [run(tmp_path / name, level(0.5), name="twin") for name in ("x", "y")]
    assert [row.label for row in compare(twins).runs] == ["twin x", "twin y"]


def test_the_same_prompts_are_answered_side_by_side(tmp_path: Path) -> None:
    readers = [run(tmp_path / "a", level(0.5)), run(tmp_path / "b", level(0.5), steps=7), run(tmp_path / "c", level(0.5), watch="Other:")]
    comparison = compare(readers)
    (row,) = comparison.watched
    assert row.prompt == "Tell me:" and row.first[2] is None and row.newest[2] is None
    assert [(answer.step, answer.response) for answer in (row.first[0], row.newest[0], row.newest[1]) if answer] == [
        (0, "before"),
        (20, "answer 20"),
        (7, "answer 7"),
    ]
    assert row.newest[0] is not None and row.newest[0].arrays == {"kl": [None, 0.1]} and row.newest[0].kl == 3.0
    assert json.loads(json.dumps(asdict(comparison), allow_nan=False))["runs"][1]["last"]["gold/score"] == 0.5


def test_a_seed_that_failed_early_is_named_and_left_out(tmp_path: Path) -> None:
    def fail(reader: RunReader) -> RunReader:
        with RunWriter(reader.run_dir) as writer:
            writer.set_state("failed", cause="the loss is not finite")
        return reader

    seeds = [run(tmp_path / f"{seed}", level(1.0 + seed), seed=seed) for seed in (1, 2)]
    early, never = fail(run(tmp_path / "3", level(-50.0), seed=3, steps=2)), fail(run(tmp_path / "4", level(0.0), seed=4, steps=0))
    comparison = compare([*seeds, early, never])
    assert "with a gold score of 2.50 on average" in comparison.verdict
    assert any(note.startswith("“3” failed after step 2") for note in comparison.notes)
    (band,) = overlay([*seeds, early, never], "gold/score").bands
    assert (band.steps, band.mean[:3], band.low[:3]) == (list(range(1, 21)), [pytest.approx(-15.0)] * 2 + [2.5], [-50.0, -50.0, 2.0])
    assert not overlay([seeds[0], never], "gold/score").bands


def test_a_step_or_two_do_not_tell_what_chance_can_do(tmp_path: Path) -> None:
    short = [run(tmp_path / f"{height}", level(height), steps=1, ppo={"kl_coef": height}) for height in (0.1, 0.4)]
    assert "about the same gold score, 0.40 against 0.10: so few steps do not tell what chance can do" in compare(short).verdict
    longer = [run(tmp_path / f"long {height}", level(height), steps=5, ppo={"kl_coef": height}) for height in (0.1, 0.4)]
    assert "reaches a gold score of 0.40 against 0.10" in compare(longer).verdict


def test_an_overlay_has_a_line_for_each_run_and_a_band_for_seeds(tmp_path: Path) -> None:
    readers = [
        run(tmp_path / "a", lambda step: 1.0 * step, steps=6),
        run(tmp_path / "b", lambda step: 3.0 * step if step != 4 else float("nan"), steps=5, seed=1),
        run(tmp_path / "c", None, ppo={"kl_coef": 0.3}),
    ]
    curves = overlay(readers, "gold/score")
    assert [line.steps for line in curves.lines] == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], []]
    assert curves.lines[1].values == [3.0, 6.0, 9.0, None, 15.0]
    (band,) = curves.bands
    assert (band.group, band.steps, band.mean) == (0, [1, 2, 3, 4, 5], [2.0, 4.0, 6.0, None, 10.0])
    assert (band.low[4], band.high[4]) == (5.0, 15.0)
    assert overlay(readers, "gold/score", groups=[compared.group for compared in compare(readers).runs]) == curves
    assert len(overlay(readers, "gold/score", points=4).lines[0].steps) <= 4


def test_a_sweep_is_a_table_with_seeds_in_one_cell(tmp_path: Path) -> None:
    grid = [(beta, rate, seed) for rate in (1e-4, 1e-5) for beta in (0.2, 0.0) for seed in (0, 1)][:-1]
    readers = [
        run(
            tmp_path / f"{n}",
            level(beta + seed / 10 + (1 if rate == 1e-4 else 0)),
            seed=seed,
            ppo={"kl_coef": beta, "learning_rate": rate},
            origin=Origin(sweep="s", changes={"ppo.kl_coef": beta, "ppo.learning_rate": rate}),
        )
        for n, (beta, rate, seed) in enumerate(grid)
    ]
    table = sweep_table(readers, "gold/score")
    assert (table.settings, table.rows, table.columns) == (["ppo.kl_coef", "ppo.learning_rate"], [0.0, 0.2], [1e-5, 1e-4])
    cell = table.cells[1][1]
    assert cell is not None and (cell.runs, cell.low, cell.high) == ([0, 1], 1.2, pytest.approx(1.3)) and cell.mean == pytest.approx(1.25)
    lonely = table.cells[0][0]
    assert lonely is not None and lonely.runs == [6]
    of_two_runs = sweep_table([readers[0], readers[2]], "gold/score")
    assert of_two_runs.columns == [1e-4] and [row[0].runs for row in of_two_runs.cells if row[0]] == [[1], [0]]


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    reader = run(tmp_path / "a", level(0.5), steps=1)
    with pytest.raises(ValueError, match="Between 1 and 20 runs can be compared, not 0"):
        compare([])
    with pytest.raises(ValueError, match="a was given 2 times"):
        overlay([reader, reader], "gold/score")
    with pytest.raises(ValueError, match="do not differ in any"):
        sweep_table([reader], "gold/score")


def test_a_metric_that_the_last_step_lacks_is_offered(tmp_path: Path) -> None:
    reader = run(tmp_path / "run", level(0.5))
    before = compare([reader]).metrics
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(21, {"time/total": 1.0}, [], []))  # its scoring failed
        assert compare([reader]).metrics == [*before, "time/total"]
        writer.go_back(20)  # what only a later step had is gone
    assert compare([reader]).metrics == before == ["objective/scores", "gold/score", "objective/kl"]
