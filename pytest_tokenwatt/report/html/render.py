"""A lab report as HTML text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.report.html.access import text
from pytest_tokenwatt.report.html.material import Material
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import Mark
from pytest_tokenwatt.report.html.parts import Section
from pytest_tokenwatt.report.html.words import clean

if TYPE_CHECKING:
    from jinja2 import Template

PACKAGES = ("jinja2", "matplotlib")
REMEDY = "pip install 'pytest-tokenwatt[report]'"
NOTHING = Material()


def require_packages() -> None:
    """Check that a page can be made at all, before anything is measured for it. Raises ``UsageError`` if not."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise UsageError(f"an HTML report needs {' and '.join(absent)}", remedy=REMEDY)


def render_html(report: Mapping[str, Any], material: Material = NOTHING) -> str:
    """The report as one page that loads nothing; the same arguments give the same page.

    ``material`` has what the figures are drawn from beside the report; what is missing in either is left out, or said
    to be missing. Raises ``UsageError`` when the packages of the extra ``report`` are not installed.
    """
    require_packages()
    page = Page(report, material)
    return _template().render(
        title=text(report, "title") or text(report, "id") or "Lab report",
        status=text(report, "status"),
        published=text(report, "published"),
        summary=text(report, "summary"),
        sections=list(_sections(page)),
        swatch=_swatch,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pytest_tokenwatt.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


def _sections(page: Page) -> Iterator[Section]:
    """All chapters that there is something to say in, verdicts first."""
    from pytest_tokenwatt.report.html.sections import (
        accuracy,
        audit,
        drift,
        ending,
        power,
        profiles,
        serving,
        summary,
        verdicts,
    )

    chapters: tuple[Callable[[Page], Section | None], ...] = (
        verdicts.verdicts,
        summary.summary,
        serving.rates,
        serving.spreads,
        power.power,
        power.joules,
        drift.drift,
        accuracy.accuracy,
        profiles.profiles,
        audit.audit,
        ending.coverage,
        ending.machine,
        ending.provenance,
        ending.spec,
    )
    for chapter in chapters:
        section = chapter(page)
        if section is not None:
            yield section


def _swatch(mark: Mark) -> Mapping[str, str]:
    """What the key to the figures draws for a mark."""
    return {"color": mark.variable, "dashes": " ".join(f"{length:g}" for length in mark.dashes), "marker": mark.marker}
