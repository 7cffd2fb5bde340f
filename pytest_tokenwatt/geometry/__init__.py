"""What a model's decode step reads from memory, from its ``config.json``, and how fast an accelerator can read."""
