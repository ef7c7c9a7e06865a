"""One module per command: carries out what the command line asks for, using the other packages."""
