"""From the user's name of a model to files on disk: references, repositories of the Hub, downloads.

The only package that imports `huggingface_hub`, and only inside functions. Knows names, sizes and hashes; knows nothing
about what is in the files.
"""

from localdiff.hub.reference import ModelSource, resolve, show_downloads

__all__ = ["ModelSource", "resolve", "show_downloads"]
