"""The codecs by name.

Knows which codecs exist; knows nothing about what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .codec import Codec
from .int8 import Int8
from .nf4 import Nf4

CODECS: Mapping[str, Codec] = MappingProxyType({codec.name: codec for codec in (Nf4(), Int8())})
