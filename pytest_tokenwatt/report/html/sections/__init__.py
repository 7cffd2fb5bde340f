"""The chapters of the page, each from a report and its material; ``None`` where a run has nothing for one."""
