"""What the drift gates are made of: sequences of token ids, and what an engine says of their next tokens."""
