"""Observers of a generation, for a terminal, a pipe or a file. Never imports torch."""
