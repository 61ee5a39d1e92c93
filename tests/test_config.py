"""The configuration: every field explains itself, every way in gives the same errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_studio.config import STAGES, RunConfig
from rlhf_studio.config import io as config_io
from rlhf_studio.config.io import (
    DEEPEST,
    MOST_PROBLEMS,
    ConfigError,
    apply_overrides,
    config_from_file,
    config_from_yaml,
    config_to_yaml,
    mapping_from_yaml,
    parse_config,
    walk_fields,
    with_values,
)
from rlhf_studio.config.ppo import CRITIC_SETTINGS
from rlhf_studio.config.run import CRITIC_SETTINGS_ELSEWHERE
from tools.settings_page import settings_document


def problems(data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(data)
    return {problem.field: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    "name",
    [
        "0E0",
        "1e5",
        "null",
        "true",
    ],
)
def test_a_name_that_reads_like_something_else_stays_a_name(name: str) -> None:
    config = parse_config({"name": name})
    assert config_from_yaml(config_to_yaml(config)) == config


@settings(max_examples=6, deadline=None)
@given(st.floats(1e-12, 1), st.integers(0, 2**31 - 1), st.text(max_size=60))
def test_values_round_trip_exactly(rate: float, seed: int, name: str) -> None:
    try:
        config = parse_config({"name": name, "ppo": {"learning_rate": rate}, "engine": {"seed": seed}})
        text = config_to_yaml(config)
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    assert config_from_yaml(text) == config


@pytest.mark.parametrize(
    ("data", "field", "part"),
    [
        ({"ppo": {"kl_coef": math.nan}}, "ppo.kl_coef", "finite"),
        ({"reward": {"components": [{"kind": "length", "target": -1}]}}, "reward.components.0.target", "greater than or equal to 0"),
        ({"lora": {"r": 0}}, "lora.r", "greater than or equal to 1"),
        ({"ppo.steps": 5}, "ppo.steps", "as ppo: {steps: 5}"),
        ({"data.prompts": "a.txt"}, "data.prompts", 'as data: {prompts: "a.txt"}'),
        ({"ppo.stepz": 5}, "ppo.stepz", "did you mean ppo.steps?"),
    ],
)
def test_bad_values_name_the_field_and_what_would_be_right(data: dict[str, Any], field: str, part: str) -> None:
    assert part in problems(data)[field]


CRITIC_IS_SET = {
    "ppo.critic_learning_rate": 1e-3, "ppo.gamma": 0.9, "ppo.lam": 1.0, "ppo.cliprange_value": 0.0, "ppo.vf_coef": 0.5,
    "ppo.whiten_advantages": False, "ppo.whiten_rewards": True, "ppo.critic_warmup_steps": 3, "model.value_head_init": "normal",
    "critic.kind": "separate", "critic.start": "policy", "critic.model": "x", "critic.revision": "x",
}  # fmt: skip


def test_what_only_a_critic_uses_is_refused_without_one() -> None:
    assert set(CRITIC_IS_SET) == {*(f"ppo.{name}" for name in CRITIC_SETTINGS), *CRITIC_SETTINGS_ELSEWHERE}
    grpo = {"advantage": "grpo", "responses_per_prompt": 4, "kl_placement": "loss", "kl_estimator": "k3"}
    for ppo in (grpo, {"advantage": "rloo", "responses_per_prompt": 4}):
        assert not parse_config({"ppo": ppo}).ppo.has_critic
        for name, value in CRITIC_IS_SET.items():
            section, setting = name.split(".")
            refused = problems({"ppo": ppo, section: {**({"ppo": ppo}.get(section, {})), setting: value}})
            assert f"{ppo['advantage']} has no critic and does not use this; leave it at" in refused[name]
            assert parse_config({section: {setting: value}})  # with a critic it is a setting like any other


def test_the_shortest_horizon_depends_on_the_batch() -> None:
    """The error counts as at most 0.2, so batch_size / 5 episodes is where the coefficient would vanish in one step."""
    assert parse_config({"ppo": {"kl_controller": "adaptive", "kl_horizon": 13}}).ppo.kl_horizon == 13
    assert parse_config({"ppo": {"kl_controller": "fixed", "kl_horizon": 1}}).ppo.kl_horizon == 1
    one_fifth = {"kl_controller": "adaptive", "batch_size": 40, "mini_batch_size": 40, "kl_horizon": 8}
    assert "use at least 9" in problems({"ppo": one_fifth})["ppo.kl_horizon"]


def test_all_problems_are_reported_at_once() -> None:
    assert set(problems({"ppo": {"gamma": 2.0}, "lora": {"alpha": 0.0}})) == {"ppo.gamma", "lora.alpha"}


def test_yaml_reads_short_exponents_as_numbers() -> None:
    assert config_from_yaml("ppo: {learning_rate: 1e-5}").ppo.learning_rate == 1e-5


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ppo: [", "not valid YAML"),
        ("- 1", "must hold settings"),
        ("name: a\nname: b", "^name: is set twice"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("[" * 5000, "inside each other"),
        ("- " * 5000, "inside each other"),
        ("a: &a [1, 1]\nb: &b [*a, *a]", r"\*a repeats another value"),
        ("ppo: {steps: " + "1" * 5000 + "}", "not a number that a setting can have"),
        ("ppo: {steps: 0x" + "f" * 5000 + "}", "not a number that a setting can have"),
        ("name: !!bool maybe", "remove the tag"),
        ("? [a, b]\n: 1", "cannot be the name of a setting"),
    ],
)
def test_bad_yaml(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        config_from_yaml(text)


def test_reading_yaml_compares_each_key_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time in proportion to the text: what took most was comparing every key with every other."""
    compared = 0

    class Key(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    monkeypatch.setattr(config_io._Loader, "construct_scalar", lambda self, node: Key(node.value))
    assert len(mapping_from_yaml("".join(f"k{number}: x\n" for number in range(500)))) == 500
    assert compared < 5 * 500


def test_the_deepest_settings_are_read() -> None:
    text = "".join(" " * level + f"k{level}:\n" for level in range(DEEPEST - 1))
    assert mapping_from_yaml(text.rstrip("\n") + " 1")
    with pytest.raises(ConfigError, match="inside each other"):
        mapping_from_yaml("top:\n" + "".join(" " + line + "\n" for line in text.splitlines()) + " " * DEEPEST + " x: 1")


def test_the_list_of_problems_is_bounded() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"ppo": {f"k{number}": 1 for number in range(5000)}})
    assert len(caught.value.problems) == MOST_PROBLEMS + 1
    assert caught.value.problems[-1].message == f"{5000 - MOST_PROBLEMS} more settings are wrong; mend these first"


def test_overrides() -> None:
    base = RunConfig().model_dump(mode="json")
    changed = parse_config(
        apply_overrides(
            base,
            {
                "ppo.kl_coef": "2e-1",
                "lora.enabled": "true",
                "reward.components.0.weight": "2.5",
                "model.policy": "123",
                "data.column": "true",
            },
        )
    )
    assert changed.ppo.kl_coef == 0.2
    assert changed.lora.enabled is True
    assert changed.reward.components[0].weight == 2.5
    assert changed.model.policy == "123"  # a text setting keeps the text
    assert changed.data.column == "true"
    assert base == RunConfig().model_dump(mode="json")


def test_a_number_needs_no_quotes_where_a_text_may_be_one(tmp_path: Path) -> None:
    """On the command line, in a file, and as the form sends it; true, 1.0 and texts that are no numbers are what they were."""
    text = "reward: {components: [{kind: reward_model, label: 1}]}\ngeneration: {stop_token: 5}"
    plain = apply_overrides(RunConfig().model_dump(mode="json"), {"reward.components.0.label": "1", "generation.stop_token": "5"})
    sent = {"reward": {"components": [{"kind": "ensemble", "models": "a, b", "label": 1}]}, "generation": {"stop_token": 5}}
    for config in (config_from_yaml(text), parse_config(plain), parse_config(sent)):
        assert (config.reward.components[0].label, config.generation.stop_token) == ("1", "5")
    (tmp_path / "run.yaml").write_text(text)
    assert config_from_file(tmp_path / "run.yaml", {"ppo.steps": "7"}).generation.stop_token == "5"
    for bad in ("generation: {stop_token: true}", "generation: {stop_token: 1.0}", "model: {revision: 0123456}", "name: 1"):
        with pytest.raises(ConfigError, match="should be text"):
            config_from_yaml(bad)
    with pytest.raises(ConfigError, match="eos, none, or token ids"):
        config_from_yaml("generation: {stop_token: -1}")


@pytest.mark.parametrize(
    ("written", "stops"),
    [("none", ()), ("[1, 4]", ("1", "4")), ("'</s>,4'", ("</s>", "4")), ("['<|eot_id|>', eos]", ("<|eot_id|>", "eos")), ("4", ("4",))],
)
def test_several_stop_tokens(written: str, stops: tuple[str, ...]) -> None:
    config = config_from_yaml(f"generation: {{stop_token: {written}}}")
    assert config.generation.stop_tokens == stops
    assert config_from_yaml(config_to_yaml(config)) == config
    with pytest.raises(ConfigError, match="eos, none, or token ids"):
        config_from_yaml("generation: {stop_token: [none, 4]}")


def test_settings_of_a_file_are_changed_before_they_are_checked(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("data: {prompts: ''}\nppo: {batch_size: 8}\nreward: {components: [{kind: length}]}\n")
    given = {"data.prompts": "a.txt", "ppo.mini_batch_size": "4", "reward.components.0.weight": "2"}
    config = config_from_file(tmp_path / "run.yaml", given)
    assert (config.data.prompts, config.ppo.batch_size, config.ppo.mini_batch_size) == ("a.txt", 8, 4)
    assert [(one.kind, one.weight) for one in config.reward.components] == [("length", 2.0)]
    with pytest.raises(ConfigError) as caught:
        config_from_file(tmp_path / "run.yaml")
    assert "data.prompts: needs a value" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("reward.components.7.weight", "reward.components.x", "reward.components.².weight", "reward.components.-1.weight"),
        *(f"reward.components.{'9' * 5000}.weight", "ppo.steps.deeper", "ppo" + ".a" * 3000),
    ],
)
def test_overrides_that_lead_nowhere(name: str) -> None:
    for change in (lambda: apply_overrides(RunConfig().model_dump(mode="json"), {name: "1"}), lambda: with_values(RunConfig(), {name: 1})):
        with pytest.raises(ConfigError, match="no entry|no such setting"):
            change()


def test_override_that_is_not_yaml() -> None:
    with pytest.raises(ConfigError, match="cannot read the value"):
        apply_overrides({}, {"ppo.steps": "[1"})
    with pytest.raises(ConfigError, match="cannot read the value"):
        apply_overrides({}, {"ppo.steps": "2020-13-01"})


def test_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().ppo.steps = 3  # type: ignore[misc]


def test_docs_table_is_made_from_the_definition() -> None:
    page = Path(__file__).parents[1] / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == settings_document(), "run: python -m tools.settings_page > docs/settings.md"


def test_no_number_is_too_small_for_float32() -> None:
    """Divided by a temperature of 1e-300, every logit is infinite; with an Adam epsilon of it, a weight without a gradient becomes NaN."""
    floats = [(kind, name) for kind in STAGES.values() for name, field in walk_fields(kind) if field.annotation is float]
    assert len(floats) > 40
    for kind, name in floats:
        for number in (1e-300, 5e-324):
            with pytest.raises(ConfigError) as refused:
                with_values(kind(), {name: number})
            assert [problem.field for problem in refused.value.problems] == [name]
    with pytest.raises(ConfigError, match="temperature"):
        with_values(RunConfig(), {"generation.temperature": 1e-20})  # a logit of 10 has no square any more
