"""The companion command's subcommands: what helps before a run and behind it, without pytest."""
