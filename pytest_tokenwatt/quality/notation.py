"""One spelling for the many ways to write a number: Unicode forms, LaTeX, separators, emphasis."""

from __future__ import annotations

import re
import unicodedata

CURRENCIES = "$¢£¤¥€₩₪₫₱₹₺₽₿"

_INVISIBLE = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF))
_MINUS = dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-")
_PLAIN = _INVISIBLE | _MINUS | {0x2019: "'", 0x2044: "/", 0x2215: "/"}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

_LATEX_SPACE = re.compile(r"\\[,;: ](?=[0-9])|(?<=[0-9])\\[,;: ]")
_LATEX_NOISE = re.compile(r"\\(?:!|left|right|displaystyle|bigl?|bigr)(?![a-z])")
_LATEX_WRAP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|underline|bm)[ ]?\{")
_DEGREES = re.compile(r"\^[ ]?\{?[ ]?\\circ\b")
_THIN = "\u00a0\u2005\u2006\u2007\u2008\u2009\u200a\u202f"
_THIN_GROUPS = re.compile(rf"(?<![0-9])[0-9]{{1,3}}(?:[{_THIN}][0-9]{{3}})+(?![0-9])")
_SPACED_GROUPS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:(?: [0-9]{3}){2,}| 000)(?![0-9])")
_THIN_SPACE = re.compile(rf"[{_THIN}]")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_AFTER_DIGIT = re.compile("(?<=[0-9])(?=[¼-¾⅐-⅞])")
_OTHER_DIGITS = re.compile(r"(?:(?![0-9])\d)+")
_CURRENCY_CODE = re.compile(r"\b(?:US\$|USD|EUR|GBP|INR|JPY|CNY|RMB|Rs\.?)(?=[ ]?-?[0-9])")
_EMPHASIS = re.compile(r"(?<![0-9])\*\*|\*\*(?![0-9])|`")


def normalise(text: str) -> str:
    """The text with every number spelled in ASCII digits, ``.``, ``,``, ``-``, ``/``, ``^`` and ``\\frac``.

    NFKC alone would turn ``5²`` into 52 and ``1½`` into 11/2, so both are parted first. Thin and no-break spaces (and
    LaTeX's) between groups of three digits are thousands separators; an ordinary space is one where nothing else makes
    sense (``1 234 567``, ``10 000``), but "3 100 dollar bills" are two numbers.
    """
    if not text.isascii():
        text = _ascii_numbers(text)
    if "\\" in text or "{,}" in text:
        text = _without_latex(text)
    text = _SPACED_GROUPS.sub(lambda group: group.group().replace(" ", ""), text)
    return _EMPHASIS.sub("", _CURRENCY_CODE.sub("$", text))


def _ascii_numbers(text: str) -> str:
    text = _THIN_GROUPS.sub(lambda group: _THIN_SPACE.sub("", group.group()), text.translate(_INVISIBLE))
    text = _AFTER_DIGIT.sub(" ", text)
    text = _RAISED.sub(lambda power: "^" + power.group().translate(_SUPERSCRIPTS), text)
    text = unicodedata.normalize("NFKC", text).translate(_PLAIN)
    return _OTHER_DIGITS.sub(lambda run: "".join(str(int(digit)) for digit in run.group()), text)


def _without_latex(text: str) -> str:
    text = text.replace("{,}", ",").replace("\\$", "$").replace("\\%", "%")
    text = _LATEX_NOISE.sub("", _LATEX_SPACE.sub("\u2009", text))
    text = _THIN_GROUPS.sub(lambda group: group.group().replace("\u2009", ""), text)
    return _LATEX_WRAP.sub(" ", _DEGREES.sub("°", text)).replace("\u2009", " ")
