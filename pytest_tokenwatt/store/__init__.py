"""What stays on disk: the run directory, its journal, and the records and requests of each configuration."""
