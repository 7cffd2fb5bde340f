"""How the lab measures one configuration: its phase, what is observed on the way, and the plan of all phases."""
