"""Traces of runs: written as they happen, read strictly, played, exported and compared. Only `probe` needs torch."""
