"""What rewards outside the program may be used: given on the command line, handed to child processes, never in a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_studio.child_process.environment import child_environment, engine_environment
from rlhf_studio.cli.main import main
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, permissions_from_environment, permissions_from_flags
from rlhf_studio.config.io import ConfigError, config_to_yaml, parse_config
from rlhf_studio.config.permissions import VARIABLE
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text("def score(prompts, responses, **extra):\n    return [float(len(text)) for text in responses]\n")
    return path


def test_flags(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link.py").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    permissions = permissions_from_flags(["mine.py", "link.py"], ["judge=http://127.0.0.1:8/a?b=c", "b.2=https://lab.example"])
    assert permissions.files == (str(file), str(file))
    assert permissions.urls == {"judge": "http://127.0.0.1:8/a?b=c", "b.2": "https://lab.example"}
    for name in ("mine.py", str(file), "link.py", "./mine.py"):
        assert permissions.allowed_file(name) == str(file)
    for name in ("", "other.py", str(tmp_path)):
        assert permissions.allowed_file(name) is None
    assert "8/a" not in repr(permissions), "addresses may hold secrets"


def test_keys_come_from_variables_that_are_named() -> None:
    environment = {"JUDGE_KEY": " s3cret\n", "OTHER": "x"}
    permissions = permissions_from_flags([], ["judge=https://x"], ["judge=JUDGE_KEY"], environment)
    assert permissions.keys == {"judge": "s3cret"} and "s3cret" not in repr(permissions)
    assert permissions_from_environment({VARIABLE: permissions.as_text()}) == permissions


@pytest.mark.parametrize(
    ("flag", "part"),
    [
        ("judge", "write NAME=VARIABLE"),
        ("judge=sk-s3cret", "write NAME=VARIABLE"),
        ("other=KEY", "--reward-key other: give the server's address too, --reward-url other=URL"),
        ("judge=NONE", "judge: the environment variable that it names is not set or empty"),
        ("judge=TWO_LINES", "cannot be a key"),
        ("judge=UMLAUT", "cannot be a key"),
    ],
)
def test_keys_that_are_wrong(flag: str, part: str) -> None:
    environment = {"KEY": "k", "EMPTY": " ", "TWO_LINES": "s3cret\nb", "UMLAUT": "s3cret\u00fc"}
    with pytest.raises(ValueError, match="--reward-key") as caught:
        permissions_from_flags([], ["judge=https://x"], [flag], environment)
    assert part in str(caught.value) and "s3cret" not in str(caught.value)


def test_a_key_beside_a_password_in_the_address() -> None:
    with pytest.raises(ValueError, match="--reward-key judge: the server's address has a user name or password already") as caught:
        permissions_from_flags([], ["judge=https://me:s3cret@x/a"], ["judge=KEY"], {"KEY": "k"})
    assert "s3cret" not in str(caught.value)
    assert permissions_from_flags([], ["judge=https://x/a@b"], ["judge=KEY"], {"KEY": "k"}).keys == {"judge": "k"}


def test_a_key_goes_to_no_other_address_than_its_own() -> None:
    given = Permissions((), {"judge": "http://x", "b": "http://b"}, {"judge": "k", "b": "kb"})
    assert given.joined(Permissions((), {"judge": "http://elsewhere"})).keys == {"b": "kb"}
    assert given.joined(Permissions((), {"judge": "http://y"}, {"judge": "new"})).keys == {"b": "kb", "judge": "new"}


@pytest.mark.parametrize(
    ("files", "urls", "part"),
    [
        (["none.py"], [], "there is no file none.py"),
        ([], ["http://x"], "write NAME=URL"),
        ([], ["a b=http://x"], "write NAME=URL"),
        ([], ["judge="], "judge: the address must begin with http"),
        ([], ["judge=file:///etc/passwd"], "judge: the address must begin with http"),
        ([], ["judge=http://"], "name a host"),
        ([], ["judge=http://x:port/s3cret"], "judge: the address must"),
        ([], ["judge=http://１２７.0.0.1/s3cret"], "judge: the host has characters that stand for others"),
        ([], ["judge=http://127。0。0。1/s3cret"], "judge: the host has characters that stand for others"),
    ],
)
def test_flags_that_are_wrong(files: list[str], urls: list[str], part: str) -> None:
    with pytest.raises(ValueError, match="--allow-custom-rewards|--reward-url") as caught:
        permissions_from_flags(files, urls)
    assert part in str(caught.value) and "s3cret" not in str(caught.value)


def test_they_travel_in_one_variable() -> None:
    given = Permissions(("/a.py",), {"judge": "http://x"}, {"judge": "k"})
    assert permissions_from_environment({VARIABLE: given.as_text()}) == given
    assert permissions_from_environment({}) == NOTHING_ALLOWED and NOTHING_ALLOWED.as_text() == ""
    assert given.joined(Permissions(("/b.py", "/a.py"), {"judge": "http://y"})) == Permissions(("/a.py", "/b.py"), {"judge": "http://y"})
    for text in ("[]", "{}", '{"files": 3, "urls": {}}', '{"files": [], "urls": []}', "x"):
        with pytest.raises(ValueError, match=f"{VARIABLE} cannot be read"):
            permissions_from_environment({VARIABLE: text})


def test_an_engine_gets_what_the_app_was_given_and_nothing_that_it_found(tmp_path: Path) -> None:
    given = Permissions(("/a.py",), {"judge": "http://x"})
    found = {VARIABLE: Permissions(("/evil.py",)).as_text(), "PATH": "/bin"}
    assert VARIABLE not in engine_environment(found, tmp_path) and VARIABLE not in child_environment(found)
    assert json.loads(engine_environment(found, tmp_path, permissions=given)[VARIABLE])["files"] == ["/a.py"]
    assert permissions_from_environment(child_environment(found, permissions=given)) == given


def test_a_configuration_cannot_grant_anything() -> None:
    for section in (
        {"reward": {"allow_custom_rewards": ["x"]}},
        {"permissions": {}},
        {"reward": {"components": [{"kind": "http", "url": "http://x"}]}},
    ):
        with pytest.raises(ConfigError, match="no such setting"):
            parse_config(section)


# --- from the command line to the run and back ----------------------------------------------------------------------------------


def test_a_run_and_its_resumption_need_the_permission_each_time(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    config = small_config(tmp_path, reward={"components": [{"kind": "python", "file": str(file), "name": "mine"}]}, ppo={"steps": 1})
    settings = tmp_path / "run.yaml"
    settings.write_text(config_to_yaml(config), encoding="utf-8")
    run_dir = tmp_path / "run"
    start = ["train", "--config", str(settings), "--run-dir", str(run_dir)]
    assert main(start) == 2
    assert f"reward.components.0.file: {file} is not allowed here; start the program with --allow-custom-rewards" in capsys.readouterr().err
    assert not run_dir.exists()
    assert main([*start, "--allow-custom-rewards", str(tmp_path / "none.py")]) == 2
    assert "there is no file" in capsys.readouterr().err

    assert main([*start, "--allow-custom-rewards", str(file)]) == 0
    reader = RunReader(run_dir)
    rollouts = reader.rollouts(1)
    assert [rollout.score for rollout in rollouts] == [float(len(rollout.response)) for rollout in rollouts]
    assert str(file) in (run_dir / "config.yaml").read_text() and VARIABLE not in (run_dir / "config.yaml").read_text()

    capsys.readouterr()
    assert main(["resume", str(run_dir)]) == 2
    assert "is not allowed here" in capsys.readouterr().err and reader.status().state == "finished"  # at the door: nothing was begun
    assert main(["resume", str(run_dir), "--allow-custom-rewards", str(file)]) == 0
    monkeypatch.setenv(VARIABLE, "{")
    assert main(["resume", str(run_dir)]) == 2
    assert f"{VARIABLE} cannot be read" in capsys.readouterr().err
