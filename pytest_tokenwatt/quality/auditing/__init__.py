"""The two halves of the audit of a timed run: the baseline's own answers, and its scores of both outputs."""
