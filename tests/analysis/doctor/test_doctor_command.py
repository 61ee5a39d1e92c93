"""The command, ``runs show``, and the page of the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from tests.analysis.doctor.made_runs import Made, after
from tools.doctor_page import doctor_document

ILL = Made(gold=True, metrics={"objective/kl": after(6, 60.0, 1.0)})


def test_doctor_says_verdict_and_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ILL.write(tmp_path / "run")
    assert main(["doctor", str(tmp_path / "run"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"]["kind"] == "improved" and printed["step"] == 16 and printed["state"] == "finished"
    assert [(finding["check"], finding["since"], finding["level"]) for finding in printed["findings"]] == [("kl-exploding", 6, "alarm")]
    assert main(["doctor", str(tmp_path / "run"), "--json", "--until", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_doctor_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ILL.write(tmp_path / "run")
    assert main(["doctor", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "verdict      improved, since step 5" in printed
    assert "alarm        The policy has left its reference far behind (kl-exploding, since step 6)" in printed
    assert "step 6: KL 60.0 nats per response, 2.73 per token" in printed
    Made().write(tmp_path / "well")
    assert main(["doctor", str(tmp_path / "well")]) == 0
    assert "Nothing was found." in capsys.readouterr().out


def test_runs_show_has_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ILL.write(tmp_path / "run")
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "verdict      Improved: score 0.10 → 1.26" in printed
    assert "alarm        The policy has left its reference far behind (since step 6)" in printed
    assert main(["runs", "show", str(tmp_path / "run"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["verdict"]["kind"] == "improved" and [finding["check"] for finding in values["findings"]] == ["kl-exploding"]


def test_a_risky_setting_is_told_wherever_the_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Made(settings={"ppo": {"steps": 16, "learning_rate": 0.9}}).write(tmp_path / "run")
    assert main(["doctor", str(tmp_path / "run")]) == 0
    title = "Learning rate 0.9 is 900 times the highest usual rate"
    assert f"alarm        {title} (settings-learning-rate, from the beginning)" in capsys.readouterr().out
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert f"alarm        {title} (from the beginning)" in capsys.readouterr().out
    export = ["export", str(tmp_path / "run"), "--html", str(tmp_path / "report.html")]
    assert main(export) == 0
    assert title in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["doctor", str(tmp_path), "--until", "0"]) == 2
    assert "should be a step from 1 on, not '0'" in capsys.readouterr().err


def test_the_page_of_the_docs_is_the_registry() -> None:
    page = Path(__file__).parents[3] / "docs" / "doctor.md"
    assert page.read_text(encoding="utf-8") == doctor_document(), "run: python -m tools.doctor_page > docs/doctor.md"
