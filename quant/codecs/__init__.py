"""The codecs by name.

    codec                   the interface of all codecs, and the encoded weight
    nf4, int8               the formats of this package
    bitsandbytes_tensor     the format of bitsandbytes, which is only read

They know numbers; they know no names and no files.
"""

from __future__ import annotations

from collections.abc import Mapping

from quant.codecs.codec import Codec
from quant.codecs.int8 import Int8
from quant.codecs.nf4 import Nf4

CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (Nf4(), Int8())}
