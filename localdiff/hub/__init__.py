"""From the user's name of a model to files on disk: references, repositories of the Hub, downloads.

    reference              a name, as a directory, which is fetched if it is not here
    repository, cache      what a repository holds, and what of it is here; names in the cache
    downloads, worker      files fetched in the background, by processes of their own
    endpoint, reach        the Hub's address, and whether it answers
    problems               what its client raises, as errors for users

The only package that imports `huggingface_hub`, and only inside functions. Knows names, sizes and hashes; knows nothing
about what is in the files.
"""

from localdiff.hub.reference import resolve, show_downloads

__all__ = ["resolve", "show_downloads"]
