"""One module a command: what the command line asks for, put together from the other rooms."""
