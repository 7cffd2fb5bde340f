"""Results of other tools, read back as records: what they hold, and notes on what they do not."""
