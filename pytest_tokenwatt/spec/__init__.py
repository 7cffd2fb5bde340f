"""The spec file: its keys, defaults and checks, and how configurations and scenarios are merged from it."""
