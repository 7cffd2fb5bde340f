"""``doctor``: what will work on this machine, what will not, and the remedy."""
