"""The colours of the page: enough contrast in both themes and in print."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("pytest_tokenwatt.report.html").joinpath("templates/style.css").read_text(encoding="utf-8")
TEXT = ("ink", "soft", "pass", "fail", "invalid", "inconclusive", "limit", "link")
SERIES = tuple(f"s{number}" for number in range(1, 7))
AA_TEXT, AA_GRAPHICS = 4.5, 3.0


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colors = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), colors, strict=True))


def luminance(color: str) -> float:
    """Relative luminance by WCAG 2.1."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_words_and_lines_stand_out(theme: str) -> None:
    colors = themes()[theme]
    for ground in ("paper", "card"):
        for name in TEXT:
            assert contrast(colors[name], colors[ground]) >= AA_TEXT, (name, ground)
        for name in SERIES:
            assert contrast(colors[name], colors[ground]) >= AA_GRAPHICS, (name, ground)


def test_both_themes_name_the_same_colours() -> None:
    names = [set(colors) for colors in themes().values()]
    assert names[0] == names[1] == names[2]


def test_the_contrast_of_black_and_white_is_known() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
