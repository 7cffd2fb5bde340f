"""Open-loop load: traces, arrival schedules, and a streaming client in worker processes."""
