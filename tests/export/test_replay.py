"""A replay to take home: a page that acts on nothing but its own script, and a picture that moves."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlhf_studio.cli.main import main
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.jobs.export import film, picture_fonts
from rlhf_studio.jobs.export.film import write_film
from rlhf_studio.jobs.export.modules import one_script
from rlhf_studio.jobs.export.replay_page import PLAYER, replay_page
from rlhf_studio.language import speaking
from rlhf_studio.runs.errors import StoreError
from tests.replay.runs import record

BAD = "</script><script>alert(1)</script><!-- \ud800 \u2028 & <b>"
SAMPLE = Path(__file__).parents[1] / "replay" / "exploits.json"


def sample(steps: int = 36, **changes: Any) -> dict[str, Any]:
    """The replay of the recording that exploits its reward, or its first steps."""
    payload: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8")) | changes
    payload["series"] = {name: values[:steps] for name, values in payload["series"].items()}
    moments = [moment for moment in payload["moments"] if moment["step"] <= steps]
    return payload | {"steps": payload["steps"][:steps], "moments": moments}


class Scripts(HTMLParser):
    """The elements of a page that act, with their attributes and what they hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "meta", "link", "img", "iframe", "b"):
            self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style") and not self.found[-1][2]:
            self.found[-1] = (*self.found[-1][:2], data)


def test_the_data_of_the_page_acts_on_nothing_and_its_rules_allow_one_script() -> None:
    payload = sample(title=BAD, moments=[{"step": 2, "kind": "phrase", "sentence": BAD}])
    payload["answers"][0]["frames"][0]["tokens"][0] = BAD
    page = replay_page(payload)
    found = Scripts(page).found
    assert [tag for tag, _, _ in found if tag != "meta"] == ["style", "script", "script"]
    (_, kind, data), (_, own, script) = (element for element in found if element[0] == "script")
    assert kind == {"type": "application/json", "id": "payload"} and own == {}
    assert json.loads(data) == payload
    style = next(text for tag, _, text in found if tag == "style")
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    rules = next(attributes["content"] for _, attributes, _ in found if attributes.get("http-equiv") == "Content-Security-Policy")
    assert rules == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; form-action 'none'; base-uri 'none'"
    )
    page.encode("utf-8")


def test_the_modules_of_the_player_become_one_script_that_works() -> None:
    script = one_script(PLAYER)
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    asked = 'console.log(JSON.stringify([typeof modules["replay/replay.js"].startReplay, modules["replay/sums.js"].valueAt([0, 4], 0.25)]))'
    done = subprocess.run([node, "-e", script + asked], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["function", 1]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "import each other: a.js, b.js"),
        ({"a.js": "export default 1;\n"}, "a.js has a form that cannot be put into one script: export default 1;"),
        ({"a.js": 'export const end = "</SCRIPT>";\n'}, "holds </script"),
    ],
)
def test_scripts_that_cannot_become_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], problem: str
) -> None:
    monkeypatch.setattr("rlhf_studio.jobs.export.modules.ASSETS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(problem)):
        one_script("a.js")


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_the_picture_has_a_frame_for_each_step_and_stands_where_something_is_said(tmp_path: Path, suffix: str) -> None:
    write_film(sample(6), tmp_path / "film", suffix)
    with Image.open(tmp_path / "film") as picture:
        durations = []
        for number in range(picture.n_frames):
            picture.seek(number)
            picture.load()
            durations.append(picture.info["duration"])
        assert picture.format == film.FORMATS[suffix] and picture.size[0] == 800
    assert len(durations) == 6 and durations[:4] == [250] * 4 and durations[5] == 4000
    assert 1600 <= durations[4] <= 3200  # step 5 has a moment


def test_a_long_run_has_fewer_frames_and_a_picture_that_stays_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = sample()
    assert film.rows_of(payload, 3) == [0, 4, 6, 7, 9, 10, 18, 35]  # of the steps 5, 7, 8, 10 and 11 something is said
    monkeypatch.setattr(film, "MOST_BYTES", 1000)
    with pytest.raises(StoreError, match="Even with 2 frames"):
        write_film(sample(2, moments=[]), tmp_path / "film", ".gif")


def test_two_scales_have_a_chart_each_and_what_is_missing_is_not_drawn(tmp_path: Path) -> None:
    bare = sample(2, one_scale=False, answers=[], tokens=None)
    bare["series"]["kl"] = [None, None]
    write_film(bare, tmp_path / "film", ".gif")
    with Image.open(tmp_path / "film") as picture:
        assert picture.size[1] < 500 and (0x4F, 0x94, 0xD8) not in {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}


class Drawn:
    """A font that has some letters, each with a shape of its own."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def getmask(self, letter: str) -> bytes:
        return letter.encode() if letter in self.letters else b"box"


def test_words_of_a_picture_are_in_the_readers_language_only_where_a_font_has_its_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = Drawn("English"), Drawn("English中文")
    fonts: list[Any] = [lambda size: own]
    monkeypatch.setattr(picture_fonts, "_found", lambda: tuple(fonts))
    with speaking("zh"):
        assert picture_fonts.picture_language() == "en"
        fonts.append(lambda size: other)
        assert picture_fonts.picture_language() == "zh"
    assert picture_fonts.picture_language() == "en"
    assert picture_fonts.fonts_for("English")(12) is own and picture_fonts.fonts_for("中")(12) is other


def test_the_command_writes_the_page_and_refuses_what_it_cannot_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "run", [0.0, 0.5, 1.0])
    record(tmp_path / "short", [0.0])
    assert main(["export", str(tmp_path / "run"), "--replay", str(tmp_path / "out.html")]) == DONE
    assert '"score":[0.0,0.5,1.0]' in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert main(["export", str(tmp_path / "run"), "--replay", str(tmp_path / "out.mp4")]) == BAD_INPUT
    assert "out.mp4: the name ends with .html, .gif, .webp" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "short"), "--replay", str(tmp_path / "no.html"), "--csv", str(tmp_path / "no.csv")]) == BAD_INPUT
    assert "a replay needs two recorded steps" in capsys.readouterr().err and not list(tmp_path.glob("no.*"))
