"""What is wrong with reward components, said before anything is loaded and at the setting to blame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, permissions_from_flags
from rlhf_studio.config.io import Problem, parse_config
from rlhf_studio.inputs.checks.rewards import check_component, check_rewards
from rlhf_studio.inputs.preflight import inspect_run


def reward_problems(component: dict[str, Any], permissions: Permissions = NOTHING_ALLOWED) -> list[tuple[str, str]]:
    problems: list[Problem] = []
    (parsed,) = parse_config({"reward": {"components": [component]}}).reward.components
    check_component(parsed, "c", None, problems, permissions)
    return [(problem.field, problem.message) for problem in problems]


@pytest.mark.parametrize(
    ("component", "field", "part"),
    [
        ({"kind": "lexicon", "use_bundled": False}, "c.positive", "words of your own are needed"),
        ({"kind": "lexicon", "positive": "good, really good"}, "c.positive", "'really good' is more than one word"),
        ({"kind": "lexicon", "positive": "odd", "negative": "bad, odd"}, "c.negative", "'odd' is among the positive words too"),
        ({"kind": "keywords", "words": " , "}, "c.words", "no words between the commas"),
        ({"kind": "regex", "pattern": "("}, "c.pattern", "is not a valid regular expression"),
        ({"kind": "python"}, "c.file", "name the Python file"),
        ({"kind": "python", "file": "mine.py"}, "c.file", "mine.py is not allowed here; start the program with"),
        ({"kind": "answer", "compare": "regex", "pattern": "("}, "c.pattern", "is not a valid regular expression"),
        ({"kind": "answer", "compare": "regex", "pattern": "(a)|(b)"}, "c.pattern", "has 2 groups and needs exactly one"),
        ({"kind": "http", "server": "judge"}, "c.server", "start the program with --reward-url judge=URL"),
    ],
)
def test_one_problem_at_its_setting(component: dict[str, Any], field: str, part: str) -> None:
    ((named, message),) = reward_problems(component)
    assert named == field and part in message


@pytest.mark.parametrize(
    "component",
    [
        {"kind": "lexicon"},
        {"kind": "lexicon", "use_bundled": False, "negative": "meh"},
        {"kind": "answer", "pattern": "("},  # not used when numbers are compared
    ],
)
def test_nothing_is_wrong(component: dict[str, Any]) -> None:
    assert reward_problems(component) == []


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("((?:(?:a{1000}){1000}){10})", "is too large once its counted repeats"),
        ("((?:(?:[)]a{1000}){1000}){10})", "is too large once"),
        ("((?#[)(?:(?:a{1000}){1000}){10})", "is too large once"),
        ("(?x)# [\n((?:(?:a{1000}){1000}){10})", "is too large once"),
        ("(?x)((?:(?:a{1 000}){10#\n00}){10})", "is too large once"),
        ("(?V1)([[a]--[)]](?:(?:a{1000}){1000}){10})", "is too large once"),
        ("(" + "a{60000}" * 10 + ")", "is too large once"),
        ("(a{1000}{1000}{1000})", "is too large once"),
        ("(a{" + "9" * 1900 + "})", "is too large once"),
        ("(" * 400 + "a" + ")" * 400, "brackets inside brackets 400 deep; at most 100"),
        ("(a){4294967296}", "is too large once"),
    ],
)
def test_a_pattern_that_would_use_up_the_machine(pattern: str, part: str) -> None:
    for component in ({"kind": "regex"}, {"kind": "answer", "compare": "regex"}):
        ((named, message),) = reward_problems({**component, "pattern": pattern})
        assert named == "c.pattern" and part in message


@pytest.mark.parametrize(
    "pattern",
    [r"\d{4}-\d{2}-\d{2}", r"(?:.{1,1000}\n){1,1000}", r"(?:\w{1,20}\s){200}", "[({]{3}" * 100, r"\({3}", "(?x) a{2} # (((", "a{3}?b{4,}+"],
)
def test_patterns_of_everyday_size(pattern: str) -> None:
    assert reward_problems({"kind": "regex", "pattern": pattern}) == []


def test_known_servers_are_listed_by_name_only() -> None:
    permissions = Permissions(urls={"judge": "http://x/s3cret", "b": "http://y"})
    assert reward_problems({"kind": "http", "server": "judge"}, permissions) == []
    ((_, message),) = reward_problems({"kind": "http", "server": "jugde"}, permissions)
    assert message.endswith("; known here: judge, b") and "s3cret" not in message


@pytest.mark.parametrize(
    ("source", "field", "part"),
    [
        (b"x = 1\n\n  y = 2", "c.file", "(line 3)"),
        (b"\x00", "c.file", "is not valid Python"),
        (b"def other(): pass", "c.function", "defines no score"),
    ],
)
def test_a_python_file_is_read_but_not_run(tmp_path: Path, source: bytes, field: str, part: str) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(source)
    ((named, message),) = reward_problems({"kind": "python", "file": str(file)}, permissions_from_flags([str(file)], []))
    assert named == field and part in message


def test_a_function_may_be_named_in_many_ways(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    permissions = Permissions((str(file),))
    for source in (
        "def score(p, r): 1 / 0",
        "score = lambda p, r: []",
        "from other import score",
        "from other import x as score",
        "class score: ...",
    ):
        file.write_text(source)
        assert reward_problems({"kind": "python", "file": str(file)}, permissions) == []
    file.unlink()
    ((_, message),) = reward_problems({"kind": "python", "file": str(file)}, permissions)
    assert "cannot be read: No such file" in message


# --- models, references and names: in the whole check ------------------------------------------------------------------------------


def test_ensembles(make_config: Any, make_reward: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_reward(name)

    def problems(**settings: Any) -> list[tuple[str, str]]:
        config = make_config(reward__components=[{"kind": "ensemble", **settings}])
        report: list[Problem] = []
        facts.append(check_rewards(config, None, report))
        return [(problem.field, problem.message) for problem in report]

    facts: list[Any] = []
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert problems(models=f"{a},\n{b}") == [] and len(facts[-1]) == 2
    for models, part in (("", "at least two models"), (a, "at least two models"), (f"{a},{b},{a}", "is named twice")):
        (field, message), *_ = problems(models=models)
        assert field == "reward.components.0.models" and part in message
    ((field, message),) = problems(models=f"{a},{tmp_path / 'none'}")
    assert field == "reward.components.0.models" and "none" in message
    assert {field for field, _ in problems(models=f"{a},{b}", label="happy")} == {"reward.components.0.label"}


def test_a_form_of_its_own_needs_a_chat_template(make_config: Any, make_reward: Any) -> None:
    folder = make_reward("chatty")

    def problems() -> list[tuple[str, str]]:
        report: list[Problem] = []
        check_rewards(config, None, report)
        return [(problem.field, problem.message) for problem in report]

    config = make_config(reward__components=[{"kind": "reward_model", "model": str(folder), "chat_template": "own"}])
    message = f"{folder} has no chat template; use policy, or a model trained on chats"
    assert problems() == [("reward.components.0.chat_template", message)]
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert problems() == []
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    ((field, message),) = problems()
    assert field == "reward.components.0.chat_template" and "cannot be read" in message


@pytest.mark.parametrize("kind", ["answer"])
def test_references_need_a_column(make_config: Any, kind: str, tmp_path: Path) -> None:
    config = make_config(reward__components=[{"kind": "length"}, {"kind": kind}])
    (problem,) = inspect_run(config, tmp_path, free_bytes=lambda _: 10**12).problems
    assert problem.field == "data.reference_column"
    assert problem.message == f"component 2 ({kind}) compares with a reference text; name the column that holds one"
    named = make_config(reward__components=[{"kind": kind}], data__reference_column="prompt")
    assert not [item for item in inspect_run(named, tmp_path).problems if "compares with" in item.message]


def test_permissions_reach_the_whole_check(make_config: Any, tmp_path: Path) -> None:
    config = make_config(reward__components=[{"kind": "http", "server": "judge"}])
    assert [problem.field for problem in inspect_run(config, tmp_path).problems] == ["reward.components.0.server"]
    assert inspect_run(config, tmp_path, permissions=Permissions(urls={"judge": "http://x"})).problems == []


def test_a_batch_that_a_judge_cannot_take(make_config: Any, tmp_path: Path) -> None:
    judge = {"kind": "judge", "server": "judge", "model": "m", "max_requests": 63}
    permissions = Permissions(urls={"judge": "http://x"})
    (problem,) = inspect_run(make_config(reward__components=[judge], ppo__batch_size=64), tmp_path, permissions=permissions).problems
    assert problem.field == "reward.components.0.max_requests"
    assert problem.message == "63 is below ppo.batch_size 64; each response may need one request"
    judge["max_requests"] = 64
    assert inspect_run(make_config(reward__components=[judge], ppo__batch_size=64), tmp_path, permissions=permissions).problems == []


def test_a_judge_that_is_shown_a_reference_needs_a_column(make_config: Any, tmp_path: Path) -> None:
    judge = {"kind": "judge", "server": "judge", "model": "m", "rubric": "{response} against {reference}"}
    problems = inspect_run(make_config(reward__components=[judge]), tmp_path, permissions=Permissions(urls={"judge": "http://x"})).problems
    assert [problem.field for problem in problems] == ["data.reference_column"]


def test_people_are_asked_by_a_run_of_one_process(make_config: Any, tmp_path: Path) -> None:
    human = [{"kind": "human"}]
    problems = inspect_run(make_config(reward__components=human, engine__processes=2), tmp_path).problems
    assert [problem.field for problem in problems if "ratings need a run of one process" in problem.message] == ["reward.components.0.kind"]
    assert not any("ratings" in problem.message for problem in inspect_run(make_config(reward__components=human), tmp_path).problems)


def test_prompts_that_leave_no_room_for_a_response_are_counted(make_config: Any, tmp_path: Path) -> None:
    """One token is one word here: 100 prompts of 3, 11 of 20 and 1 of 40 words, and a response of 8."""
    words = [3] * 100 + [20] * 11 + [40]
    config = make_config()
    (tmp_path / "prompts.txt").write_text("\n".join(" ".join(["film"] * count) for count in words))

    def checked(response: int = 8, **component: Any) -> tuple[list[str], list[str]]:
        reward = {"kind": "reward_model", "model": str(tmp_path / "reward"), **component}
        other = make_config(reward__components=[reward], generation__response_length=response, data__drop_duplicates=False)
        preflight = inspect_run(other, tmp_path, free_bytes=lambda _: 10**12)
        return [problem.field for problem in preflight.problems], [note for note in preflight.notes if "score" in note]

    assert config.reward.components[0].kind == "reward_model"
    for most in (64, 48):
        assert checked(max_tokens=most) == ([], [])
    for most in (47, 40, 28, 27, 10, 9):
        problems, (note,) = checked(max_tokens=most)
        cut, alone = sum(count + 8 > most for count in words), sum(count >= most for count in words)
        assert problems == [] and f"{cut} of 112 prompts" in note and (f"{alone} fill them alone" in note) == bool(alone), most
    assert checked(max_tokens=8)[0] == ["reward.components.0.max_tokens"]
    assert checked(max_tokens=8, reads="response") == ([], [])
    problems, (note,) = checked(response=9, max_tokens=8, reads="response")
    assert problems == [] and "the end alone" in note
    (tmp_path / "reward" / "tokenizer_config.json").write_text('{"model_max_length": 8}')
    problems, (note,) = checked()  # no setting would help, and responses may end early: nothing is refused
    assert problems == [] and "112 of 112 prompts" in note
