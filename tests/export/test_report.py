"""The report and the tables: everything that a run can hold is told, nothing in it acts, and nothing is loaded from anywhere."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rlhf_studio.analysis.logs.shareable import shareable
from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.jobs.export import insights
from rlhf_studio.jobs.export.curves import axis, curves_of
from rlhf_studio.jobs.export.report import report
from rlhf_studio.jobs.export.story import Story, story_of
from rlhf_studio.jobs.export.svg import curve_svg
from rlhf_studio.jobs.export.tables import write_csv
from rlhf_studio.jobs.export.text import cell, markdown, number, readable
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, StepRecord
from rlhf_studio.runs.writer import write_run
from tests.export import fakes
from tests.export.runs import run_with_policies


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_with_policies(folder, lora=False, name=f"run {fakes.BAD[:60]}", data={"prompts": "/home/anna/secret-place/prompts.txt"})
    return RunReader(folder)


@pytest.fixture(autouse=True)
def _no_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch)


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def story(reader: RunReader) -> Story:
    return story_of(reader)


def test_the_report_acts_on_nothing_and_loads_nothing(reader: RunReader) -> None:
    text = report(story(reader))
    page = Page(text)
    allowed = "html head meta title style body main header footer section h1 h2 h3 p span ul li details summary dl dt dd div table thead"
    allowed += " tbody tr th td q b code article figure figcaption svg line polyline circle text"
    assert {name for name, _ in page.elements} <= set(allowed.split())
    attributes = {key for _, own in page.elements for key in own}
    assert not {key for key in attributes if key.startswith("on")} and not attributes & {"href", "src", "srcset", "style", "action"}
    assert any((own.get("content") or "").startswith("default-src 'none'; style-src 'unsafe-inline'") for _, own in page.elements)
    assert "url(" not in text and "@import" not in text
    values = [value or "" for name, own in page.elements for value in own.values() if name != "svg"]
    assert not [value for value in values if "://" in value]
    assert not re.search("[\x00\u202e\ud800-\udfff]", text) and text.encode("utf-8")


def test_hostile_texts_are_shown_as_they_are(reader: RunReader) -> None:
    page = Page(report(story(reader)))
    assert page.text.count("<script>window.__pwned=1</script>${window.__pwned=2}{{x}}") >= 10
    assert "\u27e8U+202E\u27e9" in page.text and "\u27e8U+0000\u27e9" in page.text and "\u27e8U+D800\u27e9" in page.text


def test_the_report_tells_the_story(reader: RunReader) -> None:
    text = Page(report(story(reader))).text
    for sentence in (
        *("improved", "The score rose from 0.1", "One phrase takes over", "Raise the KL coefficient.", "ppo.kl_coef = 0.2", "since step 4"),
        *("A masterpiece", "15 of 16", "Mean length", "30.50", "90.00 %", "2.11", "starting policy", "KL", "ppo.learning_rate"),
        *("Changed while it ran", "made by RLHF Studio", "cpu, 2 threads", "step 3 of"),
    ):
        assert sentence in text, sentence
    table = text[text.index("How it began and how it ended") : text.index("Curves")]  # where these words first stand in a heading
    for name in ("objective/scores", "objective/kl", "nats"):
        assert GLOSSARY[name].meaning in table, name
    assert "prompts.txt" in text and "anna" not in text and "secret-place" not in text


def test_the_report_of_another_trainers_run_says_what_is_known_of_it(tmp_path: Path) -> None:
    values = {"reward/right": 1.5, "reward/short": -2.0, "loss/policy_avg": 0.25}
    origin = Origin(imported="GRPOTrainer", settings_known=False, settings_given=["ppo.kl_coef"], controls=[])
    create_run(tmp_path / "run", RunConfig.model_validate({"ppo": {"kl_coef": 0.05}}), name="theirs", origin=origin)
    with write_run(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(step=1, metrics=values, rollouts=[]))
        writer.commit_step(StepRecord(step=2, metrics={name: 2 * value for name, value in values.items()}, rollouts=[]))
    known = story_of(RunReader(tmp_path / "run"))
    assert [(title, first, last) for title, _, _, first, last in known.summary] == [("right", 1.5, 3.0), ("short", -2.0, -4.0)]
    text = Page(report(known)).text
    assert "Run recorded from GRPOTrainer" in text and "PPO run" not in text
    assert "Its other settings are not known." in text and "ppo.kl_coef" in text and "0.05" in text and "ppo.cliprange" not in text
    assert [curve.title for curve in curves_of(known.series)] == ["right", "short", "Policy loss"]


def test_nothing_found_in_few_steps_is_not_called_chance(reader: RunReader, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = fakes.learned_of(reader)
    for enough, sentence in ((True, "No phrase has clearly become"), (False, "Too few steps to tell which phrases changed")):
        monkeypatch.setattr(insights, "learned_of", lambda _, enough=enough: replace(actual, phrases=[], enough=enough))
        assert sentence in Page(report(story(reader))).text


def test_tokens_are_coloured_by_how_far_they_moved(reader: RunReader) -> None:
    spans = [span for name, span in Page(report(story(reader))).elements if name == "span" and (span.get("title") or "").endswith("nats")]
    # log-probability -1.0 where it was -1.5, and -0.2 where it was -0.1: half a nat up is the widest
    assert [(span["class"], span["title"]) for span in spans] == [("a4", "0.50 nats"), ("b1", "\u22120.10 nats")]


def test_the_csv_has_the_numbers_and_no_formula(reader: RunReader) -> None:
    file = io.StringIO()
    assert write_csv(reader, file) == 3
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert [float(row["objective/scores"]) for row in rows] == [1.0, 0.5, 2.0] and float(rows[0]["objective/kl"]) == 0.1
    assert "'=evil()" in rows[0] and "reward/=cmd" in rows[0] and float(rows[0]["'=evil()"]) == -0.5


@pytest.mark.parametrize("text", ["=1+1", "+1", "@SUM(A1)", "\t=1", "\uff1d1"])
def test_a_cell_is_never_a_formula(text: str) -> None:
    assert cell(text).startswith("'") and cell("plain = text") == "plain = text"
    parts = re.split("[;,|\t\r\n]", cell(f"x;{text},{text}|{text}").replace("\u27e8U+000D\u27e9", "\r"))
    assert not [part for part in parts if part.strip(' "')[:1] in [*"=+-@\uff1d"]]


def test_texts_of_others() -> None:
    assert readable("a\u0301" + "\u0301" * 300) == "a" + "\u0301" * 4
    assert readable("x" * 5000, 10) == "x" * 10 + "\u2026 (+4990 characters)"
    assert "|" not in markdown("a|b\nc") and "<br>" in markdown("a|b\nc") and "&#124;" in markdown("a|b")
    texts = {"/home/a/model": "model", "owner/model": "owner/model", "~/x/y": "y", "C:\\Users\\me\\m": "m", "../m": "m"}
    texts |= {"https://u:p@h/a?key=1": "https://h/a", "see hf_abcdefghijkl": "see hf_\u2026"}
    assert {value: shareable(value) for value in texts} == texts
    assert [number(value) for value in (1234.5, -0.001, 0.0, float("nan"), None, float("inf"), 1e9)] == [
        "1,234.50", "\u22120.0010", "0.00", "\u2013", "\u2013", "\u221e", "1.0e+09",
    ]  # fmt: skip


@pytest.mark.parametrize("values", [[0.0, 1.0], [5.0, 5.0], [-3.2, 0.01], [0.0, 0.0]])
def test_an_axis_holds_its_values(values: list[float]) -> None:
    low, high, ticks = axis(np.array(values))
    assert low <= min(values) and high >= max(values) and ticks[0] == low and ticks[-1] == high and 2 <= len(ticks) <= 8


def test_gaps_stay_gaps_and_peaks_stay_in_long_curves() -> None:
    steps = np.arange(1, 5001)
    values = np.sin(steps / 50)
    values[2500], values[1234] = 9.0, np.nan
    (curve,) = curves_of({"objective/kl": (steps, values), "lr": (steps, np.full(5000, np.nan))})
    assert len(curve.values) <= 800 and np.nanmax(curve.values) == 9.0 and curve.steps[-1] == 5000
    (large,) = curves_of({"objective/kl": (np.arange(4), np.array([1e308, -1e308, -3e38, 3e38]))})
    assert large.low <= -3e38 and large.high >= 3e38 and [len(line) for line in large.at(100, 50)] == [2]
    assert "svg" in str(curve_svg(large, []))
    short = curves_of({"objective/kl": (np.arange(5), np.array([1.0, np.nan, 2, 3, np.inf]))})[0]
    assert [len(line) for line in short.at(100, 50)] == [1, 2]


def test_all_files_by_the_command(reader: RunReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"--html": "r.html", "--csv": "m.csv", "--jsonl": "l.jsonl"}
    arguments = [part for flag, name in names.items() for part in (flag, str(tmp_path / name))]
    assert main(["export", str(reader.run_dir), *arguments]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(names.values())
    assert main(["export", str(reader.run_dir), *arguments]) == 2 and "exists already" in capsys.readouterr().err
    assert main(["export", str(reader.run_dir), *arguments, "--replace", "--json"]) == 0
    assert '{"result": {"files": [' in capsys.readouterr().out
    assert main(["export", str(reader.run_dir)]) == 2
    assert main(["export", str(reader.run_dir), "--csv", str(tmp_path / "a"), "--html", str(tmp_path / "a")]) == 2
    assert main(["export", str(reader.run_dir), "--csv", str(tmp_path / "a"), "--at", "2"]) == 2
