"""The sentences in other languages: complete, with the same slots, and chosen by what a reader asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.language import Message, _, ngettext, preferred, read_po, speaking
from rlhf_studio.ui.serving.bounded import Bounded
from rlhf_studio.ui.serving.spoken import asked_in
from tools import messages

SCRIPT = """import { t, tn } from "../shared/language.js";
el("p", {}, t("One {name}" + " more."), `${tn("{count} run", "{count} runs", n)} !`, t("{a} of all", { a: counted(n, "row") }));
"""
PO = """# x
msgid ""
msgstr "Content-Type: text/plain; charset=utf-8\\n"

#: a.py b.js
msgctxt "verb"
msgid "Run \\"it\\" "
"now"
msgstr "运行"

#, fuzzy
msgid "Unsure"
msgstr "不定"

msgid "{count} run"
msgid_plural "{count} runs"
msgstr[0] "{count} 次训练"
"""


def test_every_sentence_is_translated() -> None:
    assert messages.problems("zh") == []


def test_a_sentence_is_found_and_a_wrong_translation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "rlhf_studio"
    (package / "ui" / "assets").mkdir(parents=True)
    (package / "ui" / "assets" / "a.js").write_text(SCRIPT, encoding="utf-8")
    po = tmp_path / "zh.po"
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    monkeypatch.setattr(messages, "PACKAGE", package)
    monkeypatch.setattr(messages, "tables", lambda: [])
    monkeypatch.setattr(messages, "po_file", lambda language: po)
    catalog = messages.catalog_of("zh")
    assert messages.missing(catalog) == {"One {name} more.": "", "count|row": "", "{a} of all": "", "{count} run": ""}
    messages.take(
        catalog, {"One {name} more.": "再来一个 {nmae}。", "{count} run": "{count} 次训练", "count|row": "行", "{a} of all": "{a}"}
    )
    po.write_text(messages.written(catalog), encoding="utf-8")
    assert messages.problems("zh") == ["other slots than in the English sentence: One {name} more."]


def test_a_po_file_is_read_as_gettext_would() -> None:
    assert list(read_po(PO)) == [
        Message('verb\4Run "it" now', "运行", ("a.py", "b.js")),
        Message("{count} run", "{count} 次训练", ()),
    ]


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB, zh;q=0.9", "en"),
        ("de, zh-Hans;q=0.5", "zh"),
        ("zh;q=0, fr", "en"),
        ("zh;q=x", "en"),
    ],
)
def test_a_browser_gets_the_language_that_it_likes_best(accepted: str, language: str) -> None:
    assert preferred(accepted) == language


def test_the_address_comes_before_the_choice_and_the_choice_before_the_browser() -> None:
    headers = {"accept-language": "zh"}
    assert asked_in(headers) == "zh"
    headers["cookie"] = "a=b; rlhf_studio_language=en"
    assert asked_in(headers) == "en"
    headers["referer"] = "http://localhost/?tab=live&lang=zh"
    assert asked_in(headers) == "zh"
    assert asked_in(headers, "lang=en") == "en"
    assert asked_in({"cookie": "rlhf_studio_language=xx"}, "lang=../..") == "en"


async def _said_in_a_thread(threads: Bounded) -> str:
    with speaking("zh"):
        return await threads.run(lambda: _("Help"))


def test_threads_speak_as_whoever_asks() -> None:
    import asyncio

    threads = Bounded("spoken", 1, 1)
    assert asyncio.run(_said_in_a_thread(threads)) == "帮助"
    threads.close()
    assert _("Help") == "Help"
    assert ngettext("One result.", "{count} results, best first.", 2) == "{count} results, best first."
