"""Where the weights of a model's layers are while it computes."""

from __future__ import annotations

from typing import Literal, TypeAlias

Residence: TypeAlias = Literal["whole", "spread", "streamed", "from files"]
"""
whole       all on one device, where they stay
spread      on several devices; those of some layers may be read from their files for each pass
streamed    all compute on one device, to which some are copied from host memory for each pass, layer by layer
from files  the same, but they are copied from their files
"""
