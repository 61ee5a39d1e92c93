"""What the head of README.md tells a Space, and of the README of a Docker Space: documented keys, and pins that agree with ours."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from huggingface_hub.cli.hf import app
from huggingface_hub.utils import filter_repo_objects

from tests.deploy.dockerfile import ROOT, environment, only, read

GRADIO, DOCKER, ZERO = ROOT / "README.md", ROOT / "deploy" / "README.docker.md", ROOT / "deploy" / "zerogpu" / "README.md"
DEPLOY = ROOT / "docs" / "deploy.md"
PAGES = [DEPLOY, ZERO]
# The keys of Hugging Face's "Spaces Configuration Reference".
KEYS = {
    *("title", "emoji", "colorFrom", "colorTo", "sdk", "python_version", "sdk_version", "app_file", "app_port", "app_build_command"),
    *("base_path", "fullWidth", "header", "short_description", "suggested_hardware", "suggested_storage", "models", "datasets", "tags"),
    *("thumbnail", "pinned", "license", "hf_oauth", "hf_oauth_scopes", "hf_oauth_expiration_minutes", "hf_oauth_authorized_org"),
    *("disable_embedding", "startup_duration_timeout", "custom_headers", "preload_from_hub"),
}
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
LONGEST_DESCRIPTION = 60  # the hub refuses longer ones


def front_matter(path: Path) -> dict[str, Any]:
    """The head of a README. Raises ValueError when there is none."""
    match = re.match(r"---\n(.*?)\n---\n", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if match is None:
        raise ValueError(f"{path} does not begin with a head")
    found: dict[str, Any] = yaml.safe_load(match[1])
    return found


def pin(name: str) -> str:
    (found,) = re.findall(rf"^{name}(?:\[oauth\])?==(.+)$", (ROOT / "requirements.txt").read_text(), flags=re.MULTILINE)
    return str(found)


def test_keys_and_values_are_those_that_spaces_know_and_the_licence_is_ours() -> None:
    hardware = choices(["repos", "create", "a/b"], "hardware")
    declared = re.search(r'^license = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert declared and "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    for path in (GRADIO, DOCKER, ZERO):
        head = front_matter(path)
        assert set(head) <= KEYS, path
        assert {head["colorFrom"], head["colorTo"]} <= COLOURS, path
        assert 0 < len(head["short_description"]) <= LONGEST_DESCRIPTION, path
        assert not re.search(r"\w", head["emoji"]), path
        assert head["suggested_hardware"] in hardware, path
        assert isinstance(head["tags"], list) and all(isinstance(tag, str) for tag in head["tags"]), path
        assert head["license"] == declared[1].lower(), path


def test_a_gradio_space_runs_what_the_tests_run() -> None:
    head = front_matter(GRADIO)
    assert head["sdk"] == "gradio" and head["sdk_version"] == pin("gradio")
    assert (ROOT / head["app_file"]).is_file()
    assert f"python:{head['python_version']}-slim" == only(read(), "FROM").text
    least = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert isinstance(head["python_version"], str)  # 3.10 as a number would be 3.1
    assert least and int(head["python_version"].split(".")[1]) >= int(least[1])


def test_a_docker_space_listens_where_the_dockerfile_says() -> None:
    head = front_matter(DOCKER)
    assert head["sdk"] == "docker" and "sdk_version" not in head and "app_file" not in head
    assert str(head["app_port"]) == only(read(), "EXPOSE").text == environment(read())["GRADIO_SERVER_PORT"]


def test_both_say_the_same_about_the_same() -> None:
    gradio, docker = front_matter(GRADIO), front_matter(DOCKER)
    different = {key for key in gradio.keys() & docker.keys() if gradio[key] != docker[key]}
    assert different == {"sdk"}


def test_a_zerogpu_space_is_a_gradio_space_with_another_program_and_another_pytorch() -> None:
    gradio, zero = front_matter(GRADIO), front_matter(ZERO)
    assert {key for key in gradio.keys() | zero.keys() if gradio.get(key) != zero.get(key)} == {"app_file", "suggested_hardware"}
    assert "import spaces" in (ZERO.parent / zero["app_file"]).read_text()
    ours, theirs = ((folder / "requirements.txt").read_text().splitlines()[1:] for folder in (ROOT, ZERO.parent))
    assert [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other] == [(f"torch=={pin('torch')}", "torch==2.11.0")]
    assert '"torch>=2.11,' in (ROOT / "pyproject.toml").read_text()


# --- the commands of the documents ---------------------------------------------------------------------------------------------


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of ``hf`` that the words name, and the words that are left for it."""
    command, rest = app, words
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(click.Context(command), rest)
        assert found is not None
        command = found
    return command, rest


def choices(words: list[str], option: str) -> set[str]:
    """What an option of a command may be."""
    command, _ = command_of(words)
    (found,) = [one for one in command.params if one.name == option]
    return {str(getattr(one, "value", one)) for one in getattr(found.type, "choices", ())}


def commands(path: Path) -> list[list[str]]:
    """Every ``hf`` command in the blocks of a page, as words."""
    blocks = re.findall(r"^```bash\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(r"(\S*/)?hf ", line)]


def parsed(words: list[str]) -> dict[str, Any]:
    command, rest = command_of(words)
    return command.make_context(command.name, rest).params


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_installed_hf_knows_every_command_and_an_upload_leaves_out_what_was_installed_and_trained(path: Path) -> None:
    found = [parsed(words) for words in commands(path)]  # raises for what hf does not know
    uploads = [given for given in found if given.get("exclude")]
    assert len(found) >= 3 and uploads
    names = ["app.py", "rlhf_studio/ui/app.py", ".venv/bin/python", ".venv/lib/a/b.so", "workspace/runs/1/run.db", ".gitignore"]
    for given in uploads:
        assert (given["repo_type"], given["local_path"], given["path_in_repo"]) == ("space", ".", ".")
        kept = list(filter_repo_objects(names, ignore_patterns=list(given["exclude"])))
        assert kept == ["app.py", "rlhf_studio/ui/app.py", ".gitignore"]


def test_three_commands_make_a_space() -> None:
    login, create, upload = commands(DEPLOY)[:3]
    assert login == ["auth", "login"]
    assert parsed(create)["sdk"] == front_matter(GRADIO)["sdk"]
    assert create[2] == upload[1] == "NAME/rlhf-studio"
