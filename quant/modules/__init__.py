"""Quantized modules with the interfaces of the model's own: linear, experts, tied embedding.

    linear, experts, embedding     the modules
    tensor                         codes and scales as buffers
    activation                     GELU
    swap                           puts them in the place of the model's own
    adapter_hook                   what an adapter adds inside of experts

Plain and correct: each decodes what it needs, on its device, and multiplies. They know no names, files or canvases.
"""

from .adapter_hook import AdapterHook
from .embedding import QuantEmbedding
from .experts import QuantExperts, RoutedExperts
from .linear import QuantLinear
from .swap import swap_modules
from .tensor import QuantTensor

__all__ = [
    "AdapterHook",
    "QuantEmbedding",
    "QuantExperts",
    "QuantLinear",
    "QuantTensor",
    "RoutedExperts",
    "swap_modules",
]
