"""Observers of a generation, and the terminals, pipes and files that they write to. Never imports torch."""
