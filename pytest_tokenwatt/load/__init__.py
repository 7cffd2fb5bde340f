"""Load on an engine, open and closed loop: traces, schedules, and a streaming client in worker processes."""
