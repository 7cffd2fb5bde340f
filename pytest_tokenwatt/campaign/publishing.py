"""The report in all its forms: JSON, HTML and Markdown in the run directory, copies, and the CI's step summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_tokenwatt.campaign.material import gather_material
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GateResult
from pytest_tokenwatt.report import step_summary
from pytest_tokenwatt.report.markdown import render_markdown
from pytest_tokenwatt.store.atomic import write_json, write_text

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which a CI job finds the file of its summary."""


class Publication:
    """One report in all its forms, each made once and only when it is wanted.

    ``raw_dir`` holds the raw files of ``records`` for the figures of the HTML form; ``None``: there are none.
    """

    def __init__(
        self,
        report: Mapping[str, Any],
        records: Sequence[ConfigRecord],
        results: Sequence[GateResult],
        raw_dir: Path | None,
    ) -> None:
        self._report = report
        self._material = gather_material(raw_dir, records, results)
        self._html: str | None = None

    def write(self, path: Path, copies: Sequence[Path], environ: Mapping[str, str]) -> tuple[str, ...]:
        """Write ``report.json`` at ``path``, its other forms beside it, the ``copies``, and the step summary.

        Returns a line for each form that could not be made. Raises ``OSError`` when a file cannot be written, and
        ``UsageError`` when a copy was asked for that needs a package that is missing; all other forms are there then.
        """
        write_json(path, self._report)
        for place in (path.with_suffix(".md"), *(copy for copy in copies if copy.suffix != ".html")):
            self._write_form(place)
        complaints = list(self._html_at(path.with_suffix(".html")))
        complaints += self.summarise(path, environ)
        for page in (copy for copy in copies if copy.suffix == ".html"):
            self._write_form(page)
        return tuple(complaints)

    def summarise(self, full: Path | None, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Append the Markdown form to the CI's step summary, if there is one; ``full`` is where the whole report is.

        Returns a line if that could not be done.
        """
        summary = environ.get(STEP_SUMMARY)
        told = step_summary.append(summary, self._markdown(full)) if summary else None
        return (told,) if told else ()

    def _write_form(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".html":
            write_text(place, self._page())
        elif place.suffix == ".md":
            write_text(place, self._markdown(None))
        else:
            write_json(place, self._report)

    def _html_at(self, place: Path) -> Iterator[str]:
        try:
            write_text(place, self._page())
        except UsageError as error:
            yield f"{place.name} was not written: {error}"

    def _page(self) -> str:
        """Raises ``UsageError`` when a package for it is missing."""
        if self._html is None:
            from pytest_tokenwatt.report.html.render import render_html

            self._html = render_html(self._report, self._material)
        return self._html

    def _markdown(self, full: Path | None) -> str:
        return render_markdown(self._report, words=self._material.gates, full=None if full is None else str(full))
