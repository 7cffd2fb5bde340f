"""Starts the engine of a spec as pytest would, says so, and then waits to be killed; run as a script."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pytest_tokenwatt.engine.start import EnginePlace, start_engine
from pytest_tokenwatt.spec.load import load_spec


def main() -> None:
    spec, manner = Path(sys.argv[1]), sys.argv[2]
    place = EnginePlace(spec.parent / "run", "run8", spec.parent, dict(os.environ), lambda line: None)
    engine = start_engine(load_spec(spec).configurations[0], place)
    if manner == "forked" and os.fork() == 0:
        # A child that holds copies of all pipes, as workers of multiprocessing's fork method do.
        os.write(1, f"forked {os.getpid()}\n".encode())
        time.sleep(60)
        os._exit(0)
    os.write(1, f"ready {engine.endpoint}\n".encode())
    time.sleep(60)


if __name__ == "__main__":
    main()
