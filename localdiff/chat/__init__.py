"""Interactive chat: sessions and their files, slash commands, input, and remarks around a reply."""
