"""Electric power: where it is read, how it is sampled, and the energy of a window."""
