"""Observers of a generation: what the terminal, a pipe or a file gets to see. Never imports torch."""
