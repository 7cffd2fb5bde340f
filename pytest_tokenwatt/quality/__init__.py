"""Quality of the answers: suites, scorers, and the statistics that compare them."""
