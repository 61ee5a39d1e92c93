r"""Reads the number that a text gives as its answer, exactly, or says that there is no single way to read it.

1. Everything that hangs together around digits is one *token*: ``-$1,234.50``, ``1 1/2``, ``3 \times 10^{5}``, but also ``12:30`` or
   ``1/2/3``. A token is found whole, so that a number never starts or ends inside a longer one.
2. A token is a number when one of the forms below describes all of it, and nothing around it changes what it means (``x^2``, ``f(2)``,
   ``5\pi``). Any other token is ambiguous, and stays so: a part of it is never taken for the number.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from fractions import Fraction

MAX_EXPONENT = 400  # of a power of ten; 10^400 is more than any answer needs and still quick to compare
_MAX_CHARACTERS = 1000  # of one number
_AROUND = 40  # characters before and behind a token that can change what it means

_TRANSLATED = str.maketrans("\uff0e\uff0c\uff0d\uff0b\uff0f\uff05\uff04\u066b\u066c\u066a\u2215\u2044\ufe63", ".,-+/%$.,%//-")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_UNIT_POWER = re.compile(
    r"(?<![A-Za-z])((?:[mcdk]?m|in|ft|yd|mi|s|inches|feet|meters|metres|units)[)}]?)(?:\^(?:[23](?!\d)|\{[23]\})|[\u00b2\u00b3])"
)

# --- tokens ------------------------------------------------------------------------------------------------------------------

_LETTER = r"A-Za-z\u00c0-\u024f\u0370-\u03ff"
_ARGUMENT = r"\{[^{}\\]{0,80}\}"
_ATOM = (
    r"(?:[0-9]++|[\u00bc-\u00be\u2150-\u215e\u00b2\u00b3\u00b9\u2070-\u2079]"
    rf"|\\[dt]?frac ?(?:{_ARGUMENT}|[0-9]) ?(?:{_ARGUMENT}|[0-9])"
    rf"|\\sqrt(?:\[[^\[\]{{}}]{{1,9}}\])?(?:{_ARGUMENT}| ?[0-9]))"
)
_MARKS = r"[-+\u2212\u2010-\u2015.,:/'\u2019_^*\u00d7\u00b7\u22c5\u00f7\u00b1()\[\]{}$\u20ac\u00a3\u00a5%~\u00a0\u2009\u202f]"
_JOINT = (
    r"(?: ?(?:[*\u00d7\u00b7\u22c5x/\u00f7\u00b1]|\\(?:times|cdot|div|pm)(?![A-Za-z])) ?"  # 3 x 10^5, 3 / 4
    r"|,?\\[,!;: ]"  # small spaces of LaTeX
    rf"|[{_LETTER}]++{_MARKS}*+"  # 6e23, 0x1F, 3kg/4
    rf"|{_MARKS}++"
    r"| (?=[0-9]{3}(?![0-9]))(?<=(?<![0-9])[0-9] )"  # 1 000: could be one number
    r"| (?=[0-9]{3}(?![0-9]))(?<=(?<![0-9])[0-9]{2} )"
    r"| (?=[0-9]{3}(?![0-9]))(?<=(?<![0-9])[0-9]{3} )"
    r"| (?<=[0-9] )(?=0[0-9])"  # 1 0000
    r"| (?<=[0-9] )(?=[0-9]+ ?/ ?[0-9]|\\[dt]?frac|[\u00bc-\u00be\u2150-\u215e])"  # 1 1/2
    r"|)"
)
_TOKEN = re.compile(rf"{_ATOM}(?:{_JOINT}[-+\u2212]?{_ATOM})*+")

# --- what a number may look like ---------------------------------------------------------------------------------------------

_WHOLE = r"(?:[1-9][0-9]{0,2}(?:(?P<%s>,\\!|\{,\}|\\,|[,_'\u2019\u00a0\u2009\u202f])[0-9]{3})(?:(?P=%s)[0-9]{3})*|[0-9]+)"


def _digits(name: str) -> str:
    """Digits with or without groups of three, with or without a decimal point; ``name`` is that of the group for the separator."""
    return rf"(?:{_WHOLE % (name, name)}(?:\.[0-9]+)?)"


_POWER = r"10\^(?:(?P<bare>[-\u2212]?[0-9]{1,4})|\{(?P<braced>[-+\u2212]?[0-9]{1,4})\}|\((?P<bracketed>[-+\u2212]?[0-9]{1,4})\))"
_FORMS = (
    re.compile(rf"(?P<over>{_digits('a')})(?:[eE](?P<power>[-+\u2212]?[0-9]{{1,4}}))?"),
    re.compile(rf"(?:(?P<over>{_digits('a')}) ?(?:[*\u00d7\u00b7\u22c5x]|\\times|\\cdot) ?)?{_POWER}"),
    re.compile(rf"(?P<over>{_digits('a')}) ?/ ?(?P<under>[-\u2212]?{_digits('b')})"),
    re.compile(
        rf"\\[dt]?frac ?(?:(?P<digit_over>[0-9])|\{{(?P<over>[-\u2212]?{_digits('a')})\}})"
        rf" ?(?:(?P<digit_under>[0-9])|\{{(?P<under>[-\u2212]?{_digits('b')})\}})"
    ),
    re.compile(r"(?P<vulgar>[\u00bc-\u00be\u2150-\u215e])"),
)
_MIXED = re.compile(r"(?P<whole>[0-9]+)(?P<fraction> ?(?:\\[dt]?frac.*|[\u00bc-\u00be\u2150-\u215e])| [0-9]+ ?/ ?[0-9]+)")

# --- what may stand around it ------------------------------------------------------------------------------------------------

_LEAD = re.compile(r"(?P<rest>.*?)(?P<sign>[-+\u2212]?)(?P<money>[$\u20ac\u00a3\u00a5]?)(?P<inner>[-+\u2212]?)(?P<point>\.?)", re.DOTALL)
_COMMAND = re.compile(r"\\[A-Za-z]+ ?\Z")  # of LaTeX: \approx5
_FUNCTIONS = "sqrt|log|ln|sin|cos|tan|exp"
_REFUSED_BEFORE = re.compile(
    r"(?:[\^_/\u00d7\u00f7\u00b7\u22c5\u221a\u221b\u00b1\u03c0][ ({]{0,2}"  # x^2, x_{12}, x / 2
    rf"|[{_LETTER}](?<!\\left)[(\[]"  # f(2)
    rf"|(?:\\(?:[dt]?frac|d?binom|times|cdot|div|pm|mp)|(?<![A-Za-z])(?:{_FUNCTIONS})(?:_\{{?[0-9a-z]{{1,9}}\}}?)?) ?[({{\[]?"
    r"|[\]}]\{"  # \frac{x}{2}
    r"|[\w)\]}]\*{1,2}|[\w)\]}] \* "  # x*2, and no bold text
    r"|[-+\u2212\u2010-\u2013]"  # a second sign, or a dash that could be one
    r"|[-+\u2212](?:\\[A-Za-z]+ ?|\\[,!;:]|[({\[*$\u20ac\u00a3\u00a5])+ *|[-+\u2212] [({\[$\u20ac\u00a3\u00a5]+ *"  # -(2), -\boxed{2}, -$ 2
    r"|\{[-+\u2212]\}"  # {-}2
    r"|[-+\u2212] ?[A-Z]{1,3} ?"  # -US$2, -USD 2
    r"|(?<![A-Za-z])(?i:minus|negative|plus) ?"
    r"|[^\s] *[-+\u2212\u2010-\u2013] "  # 3 - 2 is not worked out
    r"|\u2212 |(?:^|\s),)\Z"
)
_REFUSED_BEHIND = re.compile(
    r"[)}\]]*(?:\^(?!\{?(?:\\circ|\\text|\\mathrm|th|st|nd|rd))"
    rf"|(?: |\\[,;:! ]|[{{\u00b7\u22c5])*(?:\\(?:left|pi|times|cdot|div|pm|[dt]?frac|infty"
    rf"|alpha|beta|gamma|theta|lambda|phi|omega|{_FUNCTIONS})(?![A-Za-z])"
    r"|[\u03b1-\u03bb\u03bd-\u03c9\u221a\u00d7\u00f7\u00b1\u221e])"
    r"|/(?:[A-Za-z](?![A-Za-z])|[\\({])"  # 5/x, but not $5/hour
    r"|\(?[abeijnqruvwxyz](?![A-Za-z])| ?[-+\u2212*] ?[b-hj-zB-HJ-Z](?![A-Za-z])|\*\*[A-Za-z](?![A-Za-z])"  # 5x, 5 + x, 5**n
    r"| ?(?:\\[a-z]+\{ ?)?(?:(?:[kKMB]|bn)(?![A-Za-z])|(?i:dozen|hundred|thousand|million|billion|trillion))"
    r"| ?[\u4e07\u842c\u5104\u4ebf\u5343\u767e\u5146])"  # ten thousand and other powers of ten, in Chinese and Japanese
)
_ALONE_IN_LINE = re.compile(r"(?:^|\n)[ \t]*- \Z")

_MARKED = re.compile(r"####|(?:answer is|answer:|answer =)(?:\*\*)?", re.IGNORECASE)


def last_number(text: str) -> Fraction | None:
    """The last number of a text, exactly; None when there is none, or when the last token with digits is not one plain number."""
    text = _normalised(text)
    last = deque(_TOKEN.finditer(text), maxlen=1)
    return _value(text, last[0]) if last else None


def only_number(text: str) -> Fraction | None:
    r"""The one number of a reference, exactly; None when it has none, several, or one that is ambiguous.

    Of a worked solution only the answer is read: the rest of the line behind the last ``####``, else what stands in the last
    ``\boxed{...}``, else what follows the last "answer is" or "answer:".
    """
    text = _normalised(_answer_part(text))
    numbers = list(_TOKEN.finditer(text))
    return _value(text, numbers[0]) if len(numbers) == 1 else None


def _answer_part(text: str) -> str:
    marks = list(_MARKED.finditer(text))
    lines = [mark for mark in marks if mark[0] == "####"]
    if lines:
        return text[lines[-1].end() :].strip().partition("\n")[0]
    boxed = text.rfind("\\boxed{")
    if boxed >= 0:
        return _braced(text, boxed)
    return text[marks[-1].end() :] if marks else text


def _braced(text: str, boxed: int) -> str:
    r"""What stands in the ``\boxed{...}`` at this place; nothing where a sign in front or something behind belongs to the number."""
    start = boxed + len("\\boxed{")
    depth = 1
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            outside = text[:boxed].rstrip(" ").endswith(("-", "+", "\u2212")) or _REFUSED_BEHIND.match(text[end + 1 :])
            return "" if outside else text[start:end]
    return ""


def _normalised(text: str) -> str:
    """The text with ASCII digits, ``$`` and ``%`` without a backslash, and units such as m^2 without their power."""
    text = text.replace("\\$", "$").replace("\\%", "%")
    if not text.isascii():
        text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text.translate(_TRANSLATED))
    return _UNIT_POWER.sub(r"\1", text)


def _value(text: str, token: re.Match[str]) -> Fraction | None:
    """The token's number; None when it is ambiguous."""
    start, end = token.span()
    if end - start > _MAX_CHARACTERS:
        return None
    lead = _LEAD.fullmatch(text[max(0, start - _AROUND) : start])
    assert lead is not None  # each of its parts may be empty
    number = token[0]
    if text[end : end + 1] in ("}", ")") and re.search(r"\^[{(][-+\u2212]?[0-9]+\Z", number):  # 10^{5}
        number += text[end]
        end += 1
    behind = text[end : end + _AROUND]
    if _refused(lead, behind):
        return None
    size = _size(f"0.{number}" if lead["point"] else number)
    return -size if size is not None and (lead["sign"] or lead["inner"]) in ("-", "\u2212") else size


def _refused(lead: re.Match[str], behind: str) -> bool:
    """Whether what stands around a token makes it something else than a plain number."""
    rest, sign = lead["rest"], lead["sign"] + lead["inner"]
    if len(sign) > 1 or _REFUSED_BEHIND.match(behind):
        return True
    if _ALONE_IN_LINE.search(rest) and not sign:  # "- 5 apples" is an item of a list; "- 5" alone could be -5
        return behind.partition("\n")[0].strip(" .$") == ""
    if _REFUSED_BEFORE.search(rest) or (sign and rest[-1:] == "|" == behind[:1]):  # |-5|
        return True
    if lead["point"] and not sign and rest[-1:] not in ("", " ", "\n", "\t", *"([{$=:~*\u2248"):
        return True
    if lead["sign"] and (rest[-1:] in (")", "]", "}", ".", "%") or _ends_in_letter(rest)):  # x-3
        return True
    return not lead["money"] and _ends_in_letter(rest) and _COMMAND.search(rest) is None


def _ends_in_letter(text: str) -> bool:
    return re.search(rf"[{_LETTER}0-9]\Z", text) is not None


def _size(token: str) -> Fraction | None:
    """The number without its sign, when one of the forms describes the whole token."""
    mixed = _MIXED.fullmatch(token)
    if mixed is not None:
        fraction = _size(mixed["fraction"].strip())
        return Fraction(mixed["whole"]) + fraction if fraction is not None and 0 < fraction < 1 else None
    for form in _FORMS:
        match = form.fullmatch(token)
        if match is not None:
            return _worked_out(match.groupdict())
    return None


def _worked_out(parts: dict[str, str | None]) -> Fraction | None:
    if parts.get("vulgar"):
        above, _, below = unicodedata.normalize("NFKC", parts["vulgar"] or "").partition("\u2044")
        return Fraction(int(above), int(below))
    over, under = (_signed(parts.get(name) or parts.get(f"digit_{name}") or "1") for name in ("over", "under"))
    exponent = next((int(_signed(power)) for power in map(parts.get, ("power", "bare", "braced", "bracketed")) if power), 0)
    if abs(exponent) > MAX_EXPONENT or under == 0:
        return None
    return over * Fraction(10) ** exponent / under


def _signed(digits: str) -> Fraction:
    size = Fraction(re.sub(r"[^0-9.]", "", digits))
    return -size if digits[0] in "-\u2212" else size
