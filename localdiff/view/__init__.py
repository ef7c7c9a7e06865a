"""Rendering of a condensing canvas: events and pieces in, rows out. No torch, no terminal."""
