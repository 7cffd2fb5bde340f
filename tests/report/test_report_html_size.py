"""A long run: the page stays small and is made quickly."""

from __future__ import annotations

import time
from array import array

import numpy as np
import pytest
from html_samples import full_report, power, probe, sample, serving

from pytest_tokenwatt.report.html.material import Material
from pytest_tokenwatt.report.html.render import render_html

MOST_BYTES = 2_000_000
MOST_CPU_S = 5.0
HOUR_S = 3600
REQUESTS = 300_000


@pytest.mark.slow
def test_a_run_of_an_hour_on_eight_boards_is_small_and_quick() -> None:
    generator = np.random.default_rng(7)
    probes = tuple(
        probe(10.0 * step, "pass" if step < 20 else "fail", 20.0 * step, 90.0 + 125 * step) for step in range(1, 28)
    )
    served = tuple(
        serving(
            key,
            probes=probes,
            samples={
                metric: sample(generator.lognormal(5.0, 0.5, REQUESTS // 2), failed=100) for metric in ("ttft", "tpot")
            },
        )
        for key in ("baseline", "tuned")
    )
    boards = tuple(power(key, sensors=8, readings=HOUR_S * 10) for key in ("baseline", "tuned"))
    for source in boards:
        for each in source.sensors:
            each.watts[:] = array("d", generator.normal(600, 60, len(each.watts)).tobytes())
    report = full_report()
    started_s = time.process_time()
    page = render_html(report, Material(serving=served, power=boards))
    assert time.process_time() - started_s < MOST_CPU_S
    assert len(page.encode()) < MOST_BYTES
    assert "36,000 readings of 8 sensors" in page
