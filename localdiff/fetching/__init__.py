"""From the name of a model to its directory: a model on the Hub is examined first, and fetched if it can be run.

contents    what a repository holds, from its `config.json`, its index and the headers of its weight files
transfer    downloads of files, and their progress
source      all of it, in order: look, refuse, ask, fetch
"""
