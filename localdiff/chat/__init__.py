"""Conversations at a keyboard: sessions and their files, slash commands, input, and what is said around a reply."""
