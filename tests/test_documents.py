"""The documents that lead through the source name what is there: paths, functions, and which room uses which."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlhf_studio import engine
from tests.test_architecture import MAY_IMPORT, PACKAGE, ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [ARCHITECTURE, ROOT / "docs" / "extending.md", ROOT / "docs" / "rewards.md", ROOT / "CONTRIBUTING.md"]
BASES = [ROOT, PACKAGE, PACKAGE / "engine", PACKAGE / "ui", PACKAGE / "ui" / "assets"]
A_FILE = re.compile(r"[\w./-]+\.(py|js|css|md|yaml|toml)")
A_FOLDER = re.compile(r"[\w.-][\w./-]*/")
# Files that a person has, or that a run writes.
OF_PEOPLE = {
    "config.yaml",
    "config-1.yaml",
    "train_reward.py",
    "my_rewards.py",
    "checkpoints/step-000020/",
    "snapshots/step-000020/",
    "policy/",
    "rlhf_studio/config/recipes/NAME.yaml",
}


def ticked(text: str) -> list[str]:
    """What stands in backticks in a line or a cell."""
    return re.findall(r"`([^`]+)`", text)


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def found(name: str, beside: Path | None) -> Path | None:
    """The file or folder of that name; a bare name may lie in the folder that was named last."""
    places = [base / name for base in (*BASES, *([beside] if beside else []))]
    return next((place for place in places if place.is_dir() or place.is_file()), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    beside, seen = None, 0
    for name in ticked(without_fences(page.read_text(encoding="utf-8"))):
        if name in OF_PEOPLE or not (A_FILE.fullmatch(name) or A_FOLDER.fullmatch(name)):
            continue
        place = found(name, beside)
        assert place is not None, f"{page.name} names {name}"
        beside, seen = place if place.is_dir() else place.parent, seen + 1
    assert seen > 5


def test_the_command_of_from_trl_changes_every_form_of_import(tmp_path: Path) -> None:
    """So that the names of the program stay bound: ``trl`` by ``import trl``."""
    page = (ROOT / "docs" / "from-trl.md").read_text(encoding="utf-8")
    command = page[page.index("sed -i") : page.index("\npython ppo.py")]
    program = tmp_path / "ppo.py"
    program.write_text("from trl import PPOConfig\nfrom trl.core import LengthSampler\nimport trl\n    import trl as t\nimport trlx\n")
    subprocess.run(shlex.split(command.replace("\\\n", " ")), cwd=tmp_path, check=True)
    assert program.read_text().splitlines() == [
        "from rlhf_studio.trl import PPOConfig",
        "from rlhf_studio.trl.core import LengthSampler",
        "import rlhf_studio.trl as trl",
        "    import rlhf_studio.trl as t",
        "import trlx",
    ]


def test_paths_in_drawings_exist() -> None:
    drawings = re.findall(r"^```\n(.*?)^```", ARCHITECTURE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    names = [match[0] for drawing in drawings for match in A_FILE.finditer(drawing) if match[0] not in (*OF_PEOPLE, "poll.js")]
    assert len(names) > 10
    assert [name for name in names if not found(name, None)] == []


def table(heading: str, text: str) -> list[list[str]]:
    """The cells of the rows, without the head, of the first table after a piece of text."""
    rows = text[text.index(heading) :].split("\n| ", 1)[1].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def defined(path: Path) -> Iterator[str]:
    """Names of functions, classes and module variables; of what a class holds also \"Class.name\"."""

    def names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from {node.name, prefix + node.name}
            if isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{node.name}.")
            if isinstance(node, ast.AnnAssign | ast.Assign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    yield from {ast.unparse(target), prefix + ast.unparse(target)}

    yield from names(ast.parse(path.read_text(encoding="utf-8")).body, "")


@pytest.mark.parametrize("row", table("## Where is", ARCHITECTURE.read_text(encoding="utf-8")), ids=lambda row: row[0])
def test_what_the_architecture_points_at_is_defined_there(row: list[str]) -> None:
    """Each name is looked for in the file before it; the first names are of the trainer."""
    file = PACKAGE / "engine" / "loop" / "trainer.py"
    assert ticked(row[1])
    for name in ticked(row[1]):
        if A_FILE.fullmatch(name):
            file = found(name, None) or file
        else:
            assert name in set(defined(file)), f"{name} is not defined in {file.relative_to(PACKAGE)}"


def test_the_table_of_rooms_is_the_one_that_is_enforced() -> None:
    rows = {ticked(room)[0]: set(ticked(uses)) for room, _, uses in table("## Rooms", ARCHITECTURE.read_text(encoding="utf-8"))}
    enforced = {room: names for room, names in MAY_IMPORT.items() if not room.startswith(("engine", "__"))}
    ours = [names for room, names in MAY_IMPORT.items() if room.startswith("engine")]
    enforced["engine"] = {name for name in set().union(*ours) if not name.startswith("engine")}
    assert rows == enforced


def test_the_rooms_of_the_engine_stand_in_one_order() -> None:
    rows = table("The engine from the top", ARCHITECTURE.read_text(encoding="utf-8"))
    rooms = [ticked(row[0])[0] for row in rows if len(ticked(row[0])) == 1]
    assert rooms == re.findall(r"^- :mod:`\.(\w+)`", engine.__doc__ or "", flags=re.MULTILINE)
    assert set(rooms) == {path.parent.name for path in (PACKAGE / "engine").glob("*/__init__.py")}


@pytest.mark.slow
def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """All documents, also those of the root, as one site that asks for nothing from the network. (With -q it would not be strict.)"""
    pytest.importorskip("mkdocs", reason="mkdocs-material is not installed")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-d", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index", "CONTRIBUTING", "SECURITY"} < set(pages)
    assert [name for name, text in pages.items() if re.search(r'<(script|link|img)[^>]+(src|href)="?https?:', text)] == []


def test_the_citation_names_the_newest_release() -> None:
    version, date = re.findall(r"^## ([\d.]+) \((\d{4}-\d\d-\d\d)\)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (str(citation["version"]), str(citation["date-released"])) == (version, date)
