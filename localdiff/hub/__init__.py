"""From the name of a repository of the Hub to files on disk: listings, downloads, and what may go wrong.

    listing, repository    what a repository holds, and what of it is here; its files, and their bytes
    cache                  names in the Hub's cache
    downloads, worker      files fetched in the background, by processes of their own
    large_file             a file that continues where an earlier process ended
    endpoint, reach        the Hub's client before its first request, and its variables; whether the Hub answers
    problems               what the Hub's client raises, as errors for users
    retries                requests repeated while the Hub is busy or failing, downloads while the line is down

The only package that imports `huggingface_hub`, and only inside functions. Knows names, sizes and hashes; knows nothing
about what is in the files.
"""
