from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os
from pytest_tokenwatt.load.urgency import run_when_due
granted = run_when_due()
policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
assert policy == (os.SCHED_RR if granted else os.SCHED_OTHER), policy
child = os.fork()
if child == 0:
    os._exit(0 if os.sched_getscheduler(0) == os.SCHED_OTHER else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_RR"), reason="no scheduling classes here")
def test_a_worker_goes_first_where_it_may_and_its_children_do_not() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
