"""From the name of a model to its directory: what is on the Hub is looked at first, and fetched if it can be run.

contents    what a repository holds, from its `config.json`, its index and the headers of its weight files
transfer    files on their way, and how far that is
source      all of it, in order: look, refuse, ask, fetch
"""
