"""All forms of a report that can be made are made, whatever one of them lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.publishing import STEP_SUMMARY, Publication
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.replay import open_replay

REFERENCE = Path(__file__).resolve().parents[1] / "report" / "reference"


def test_without_the_packages_of_the_page_everything_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = open_replay([REFERENCE / "lab-moe-kernels.json"], out=tmp_path / "judged")
    results = [lab.judge(gate) for gate in lab.gates]
    done = lab.finish()
    assert done is not None
    monkeypatch.setattr("pytest_tokenwatt.report.html.render.find_spec", lambda _: None)
    publication = Publication(done.report, (), results, None)
    summary = tmp_path / "summary.md"
    (told,) = publication.write(tmp_path / "report.json", [tmp_path / "copy.json"], {STEP_SUMMARY: str(summary)})
    assert told.startswith("report.html was not written: an HTML report needs jinja2 and matplotlib; pip install")
    summary.unlink()
    wanted = [tmp_path / name for name in ("page.html", "late.md", "late.json")]
    with pytest.raises(UsageError, match="needs jinja2 and matplotlib"):
        publication.write(tmp_path / "report.json", wanted, {STEP_SUMMARY: str(summary)})
    assert [path.exists() for path in (*wanted, summary)] == [False, True, True, True]
