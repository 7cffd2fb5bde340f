"""The embedded engine: a serving engine with a step-time model, for machines without a GPU and for tests."""
