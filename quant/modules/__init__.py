"""Quantized modules with the interfaces of the model's own: linear, experts, tied embedding.

Plain and correct: each decodes what it needs, on its device, and multiplies. They know no names, files or canvases.
"""

from .adapter_hook import AdapterHook
from .embedding import QuantEmbedding
from .experts import QuantExperts
from .linear import QuantLinear
from .swap import swap_modules
from .tensor import QuantTensor

__all__ = ["AdapterHook", "QuantEmbedding", "QuantExperts", "QuantLinear", "QuantTensor", "swap_modules"]
