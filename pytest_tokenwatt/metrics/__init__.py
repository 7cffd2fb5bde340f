"""Requests turned into numbers: latencies, judged windows, the search for the highest passing rate, goodput."""
