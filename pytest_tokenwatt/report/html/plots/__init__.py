"""The figures of the page; each returns ``None`` where there is nothing to draw."""
