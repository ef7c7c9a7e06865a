"""What a condensing canvas looks like: events and pieces in, rows out. No torch, no terminal."""
