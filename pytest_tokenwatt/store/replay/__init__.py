"""Files of earlier runs, read back as a spec and the records to judge by it."""
