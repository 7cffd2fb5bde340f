"""Whose processes an engine's are, and what their environment says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_tokenwatt.engine.processes import behind_port, environment_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_the_processes_behind_a_port_are_found_with_their_children() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        found = behind_port("localhost", server.getsockname()[1])
        child.communicate(b"\n")
    assert found is not None
    assert {os.getpid(), child.pid} <= found


@pytest.mark.parametrize("host", ["gpu-node-7", "10.0.0.7"])
def test_nothing_is_known_of_another_machine(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert behind_port(host, server.getsockname()[1]) is None


def test_nothing_is_known_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert behind_port("127.0.0.1", port) is None


def test_the_oldest_process_has_the_variable_that_the_user_gave() -> None:
    script = (
        "import os, subprocess, sys\n"
        "env = {**os.environ, 'CUDA_VISIBLE_DEVICES': '1'}\n"
        "child = subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()'], env=env)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    told = [int(parent.stdout.readline()) for _ in range(2)]
    child = max(told)
    both = environment_of([child, parent.pid], ["CUDA_VISIBLE_DEVICES", "NO_SUCH_VARIABLE"])
    alone = environment_of([child], ["CUDA_VISIBLE_DEVICES"])
    parent.communicate("\n")
    assert both == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert alone == {"CUDA_VISIBLE_DEVICES": "1"}
