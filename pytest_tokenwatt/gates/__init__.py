"""Promises and their verdicts: which gates a spec has, and pure functions from records to verdicts."""
