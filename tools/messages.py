"""The sentences of the app and its scripts, and their translations.

``python -m tools.messages`` gathers the sentences from the source and brings ``rlhf_studio/locale`` up to date: a new sentence has no
translation yet, one that nobody says any more goes. ``--missing`` prints the sentences without a translation as JSON;
``--take FILE`` takes such a file with the translations filled in. ``--check`` says what is wrong, and changes nothing; a test asks it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_python
from babel.messages.pofile import read_po, write_po

from rlhf_studio.language import ENGLISH, LANGUAGES, TOLD, po_file
from tools.message_scripts import Call, calls
from tools.message_tables import tables
from tools.message_told import told_in

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlhf_studio"
SLOT = re.compile(r"(?<!\{)\{(\w*)(?:[!:][^{}]*)?\}(?!\})")
HEADER = "# The sentences of RLHF Studio; see CONTRIBUTING.md."
COUNT = "count"  # the context of what `counted` of shared/format.js says after a number
PLURALS, IN_CONTEXT = ("ngettext", "tn"), ("pgettext", "tp")
FUNCTIONS = dict.fromkeys(("_", "N_", "t", "tx", *PLURALS, *IN_CONTEXT, "counted"))


class Said(NamedTuple):
    """A sentence: its context, its English text, that of its plural, and the file that says it. What is not there is empty."""

    context: str
    one: str
    many: str
    place: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes it another sentence than others."""
        return self.context, self.one


def said() -> Iterator[Said]:
    """Every sentence of the source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "rlhf_studio.language import" in path.read_text(encoding="utf-8"):
            found = extract_python(BytesIO(path.read_bytes()), FUNCTIONS, [], {})
            yield from _sentences(path, ((name, [texts] if isinstance(texts, str | None) else list(texts)) for _, name, texts, _ in found))
        yield from (Said(TOLD, text, "", path.relative_to(ROOT).as_posix()) for text in told_in(path, PACKAGE))
    for path in sorted((PACKAGE / "ui" / "assets").rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        if path.name == "language.js" or re.search(r'language\.js"|counted\(', text):
            yield from _sentences(path, calls(text, FUNCTIONS))
    yield from (Said("", text, "", f"rlhf_studio/{place}") for place, text in tables())


def _sentences(path: Path, found: Iterable[Call]) -> Iterator[Said]:
    place = path.relative_to(ROOT).as_posix()
    for function, texts in found:
        first, second = (*texts, None, None)[:2]
        if function in PLURALS and first and second:
            yield Said("", first, second, place)
        elif function in IN_CONTEXT and first and second:
            yield Said(first, second, "", place)
        elif function == "counted" and second:
            yield Said(COUNT, second, "", place)
        elif function not in (*PLURALS, *IN_CONTEXT, "counted") and first:
            yield Said("", first, "", place)


def catalog_of(language: str) -> Catalog:
    """The sentences of the source with the translations that there are."""
    path = po_file(language)
    old = read_po(BytesIO(path.read_bytes()), locale=language) if path.is_file() else Catalog(locale=language)
    new = Catalog(locale=language, project="RLHF Studio", header_comment=HEADER)
    for one in said():
        known = old.get(one.one, context=one.context or None)
        text = known.string if known is not None and not known.fuzzy else ""
        text = next(iter(text), "") if isinstance(text, tuple) else text
        told_to = [(one.place, 0)] if one.place.endswith(".js") else []  # the app sends what its scripts say, and asks no other place
        new.add((one.one, one.many) if one.many else one.one, (text,) if one.many else text, told_to, context=one.context or None)
    return new


def written(catalog: Catalog) -> str:
    """The catalog as a .po file, without what changes with every change of the source: dates, and numbers of lines. And without the marks
    of sentences with slots: :func:`problems` looks at all."""
    out = BytesIO()
    write_po(out, catalog, width=140, sort_output=True, omit_header=True, include_lineno=False)
    text = re.sub(r"^#, python-(brace-)?format\n", "", out.getvalue().decode("utf-8"), flags=re.MULTILINE)
    return f'{catalog.header_comment}\nmsgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n{text}'


def problems(language: str) -> list[str]:
    """What is wrong with a language's sentences; nothing where every one is translated, with the same slots, and none is left over."""
    catalog = catalog_of(language)
    found = [] if po_file(language).read_text(encoding="utf-8") == written(catalog) else ["out of date: run python -m tools.messages"]
    for message in catalog:
        one = message.id if isinstance(message.id, str) else message.id[0]
        text = message.string if isinstance(message.string, str) else message.string[0]
        if not one:
            continue
        wanted = set(SLOT.findall(one if isinstance(message.id, str) else "".join(message.id)))
        if not text:
            found.append(f"no translation: {one}")
        elif (slots := set(SLOT.findall(text))) != wanted and not (message.context == TOLD and slots < wanted):
            found.append(f"other slots than in the English sentence: {one}")
    return found


def missing(catalog: Catalog) -> dict[str, str]:
    """The sentences without a translation; a context stands before its sentence, with a vertical bar between."""
    empty = [message for message in catalog if message.id and not any(message.string)]
    return {_name(message.context, message.id if isinstance(message.id, str) else message.id[0]): "" for message in empty}


def _name(context: str | None, text: str) -> str:
    return f"{context}|{text}" if context else text


def take(catalog: Catalog, given: dict[str, str]) -> None:
    """Fill in translations, which are named as :func:`missing` names them."""
    for message in catalog:
        text = given.get(_name(message.context, message.id if isinstance(message.id, str) else message.id[0])) if message.id else ""
        if text:
            message.string = text if isinstance(message.id, str) else (text,)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tools.messages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="say what is wrong, and change nothing")
    parser.add_argument("--missing", action="store_true", help="print the sentences without a translation, as JSON")
    parser.add_argument("--take", type=Path, help="a JSON file of sentences and their translations", metavar="FILE")
    options = parser.parse_args()
    found: list[str] = []
    for language in (name for name in LANGUAGES if name != ENGLISH):
        if options.check:
            found += [f"{language}: {problem}" for problem in problems(language)]
            continue
        catalog = catalog_of(language)
        if options.take:
            take(catalog, json.loads(options.take.read_text(encoding="utf-8")))
        po_file(language).write_text(written(catalog), encoding="utf-8")
        if options.missing:
            sys.stdout.write(json.dumps(missing(catalog), ensure_ascii=False, indent=0) + "\n")
        else:
            sys.stdout.write(f"{language}: {len(catalog)} sentences, {len(missing(catalog))} without a translation\n")
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
