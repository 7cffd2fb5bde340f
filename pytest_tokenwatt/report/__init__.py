"""What people read of a run: the table, the plan, the lab report and JUnit properties. Sees records only."""
