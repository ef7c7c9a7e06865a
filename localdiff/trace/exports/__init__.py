"""Traces in other forms: text, JSON, a picture, a terminal recording. Each is a pure function to a string."""
