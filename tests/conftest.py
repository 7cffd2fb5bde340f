"""What all tests share: pytester for the plugin's tests, and one hypothesis profile."""

from __future__ import annotations

import signal

import numpy  # noqa: F401 - pytester forgets what a run imported, and numpy cannot be loaded a second time
import scipy.stats  # noqa: F401
import trustme  # noqa: F401 - nor can cryptography below it
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "pytest_tokenwatt.testing"]

# A shell that starts pytest in its background has it ignore Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that run tests beside an engine are busy: a slow example is no defect. The same tree gives the same verdict
# every time; `make fuzz` looks for examples that nobody has seen.
settings.register_profile(
    "steady", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("fuzz", settings.get_profile("steady"), max_examples=600, derandomize=False)
settings.load_profile("steady")
