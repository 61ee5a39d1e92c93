"""The sentences in other languages: complete, with the same slots, and chosen by what a reader asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import REWARD_KINDS, STAGES
from rlhf_studio.config.io import ConfigError, nested, parse_config, walk_fields
from rlhf_studio.exit_codes import BAD_INPUT
from rlhf_studio.language import Message, _, ngettext, of_environment, preferred, read_po, speaking, told
from rlhf_studio.ui.problems import for_page
from rlhf_studio.ui.serving.bounded import Bounded
from rlhf_studio.ui.serving.spoken import asked_in
from tools import messages
from tools.message_told import told_in

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


def test_what_was_said_in_english_is_found_again_by_its_words() -> None:
    error = "reward component a: the server b: did not answer within 5 s"
    assert told(error) == error
    with speaking("zh"):
        assert told("Paused after the update, in step 3") == "已暂停：第 3 步，更新之后"
        assert told(error) == "奖励分量 a：服务器 b：5 秒内没有答复"
        assert told("Checkpoint of step 20 written. disk on fire") == "已写下第 20 步的检查点。disk on fire"
        assert told("KeyError: 'x'") == "KeyError: 'x'"
        place = "a.jsonl, line 3, prompt: it is missing; give the text of the prompt."
        assert told(place) == "a.jsonl 第 3 行的 prompt：缺少该字段；请给出提示词的文本。"
        changed = "KL target from 1 to 2, from step 4 on. Temperature from 1 to 0.9, from step 4 on."
        assert told(changed) == "目标 KL 从 1 改为 2，自第 4 步起。温度从 1 改为 0.9，自第 4 步起。"


BAD = (-1e9, 1e9, "x", "x" * 5000, "", [], ["a", "b"], {"a": 1}, None, 1.5, nan, True, "a, b")
ENGLISH_WORDS = re.compile("([a-z]{2,} ){2}")
IN_QUOTES = re.compile(r"""(['"]).*?(\1|\.\.\.)|\{[^}]*\}|\S*[/_.:]\S*""")


def bad_settings() -> Iterator[dict[str, Any]]:
    """Settings with one bad value each, of all stages and rewards; some values fit after all."""
    for stage, kind in STAGES.items():
        for name, _field in walk_fields(kind):
            yield from (nested({"stage": stage, name: value}) for value in BAD)
    for kind in REWARD_KINDS:
        for name in REWARD_KINDS[kind].model_fields:
            yield from ({"reward": {"components": [{"kind": kind, name: value}]}} for value in BAD)


def test_what_is_wrong_with_any_setting_is_said_in_chinese() -> None:
    english = set()
    for settings in bad_settings():
        try:
            parse_config(settings)
        except ConfigError as error:
            with speaking("zh"):
                said = [told(problem.message) for problem in error.problems] + [row["message"] for row in for_page(error.problems, {})]
            english |= {
                text for text in said if not re.search("[\u4e00-\u9fff]", text) or re.search("([a-z]{2,} ){2}", IN_QUOTES.sub("", text))
            }
    assert not english


def test_an_f_string_that_is_raised_is_a_sentence_with_slots(tmp_path: Path) -> None:
    source = """
def check(path, many):
    why = f"it has {len(many):,} parts"
    if many:
        raise StoreError(f"{path} is damaged: {why if many else 'nobody knows'}.")
    raise RuntimeError("for programmers only")
"""
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    assert set(told_in(tmp_path / "a.py", tmp_path)) == {"nobody knows", "it has {many} parts", "{path} is damaged: {value}."}


def test_the_command_line_speaks_as_asked_or_as_the_system(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_environment({"LC_ALL": "zh_CN.UTF-8", "LANG": "en_US"}) == "zh" and of_environment({"LANG": "C"}) == "en"
    monkeypatch.setenv("RLHF_STUDIO_LANG", "zh")
    assert main(["train", "--recipe", "world", "--ppo.steps", "0"]) == BAD_INPUT
    assert main(["--lang=en", "train", "--recipe", "world", "--ppo.steps", "0"]) == BAD_INPUT
    assert main(["runs", "show", "--lang", "zh"]) == BAD_INPUT and main(["recipes", "list", "--lang", "xx"]) == BAD_INPUT
    chinese, english, missing, unknown = capsys.readouterr().err.splitlines()
    assert chinese == "rlhf-studio: ppo.steps：最小是 1，不能是 0" and "greater than or equal to 1" in english
    assert missing.startswith("rlhf-studio: 缺少必需的参数：RUN") and unknown.endswith("should be one of en, zh, not xx")


async def _said_in_a_thread(threads: Bounded) -> str:
    with speaking("zh"):
        return await threads.run(lambda: _("Help"))


def test_help_in_chinese_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["evaluate", "--help", "--lang", "zh"])
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.encode("gb18030")) for line in lines) <= 80  # two bytes for each Chinese character, as it takes two columns
    assert not [line for line in lines if line.lstrip()[:1] in set("、。，；：？！）”")]


def test_threads_speak_as_whoever_asks() -> None:
    import asyncio

    threads = Bounded("spoken", 1, 1)
    assert asyncio.run(_said_in_a_thread(threads)) == "帮助"
    threads.close()
    assert _("Help") == "Help"
    assert ngettext("One result.", "{count} results, best first.", 2) == "{count} results, best first."
