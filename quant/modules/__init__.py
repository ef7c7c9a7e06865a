"""Quantized modules with the interfaces of the model's own: linear, experts, tied embedding.

    linear, experts, embedding     the modules
    tensor                         codes and scales as buffers
    swap                           puts them in place of the model's own

Plain and correct: each decodes what it needs, on its device, and multiplies. They know no names, files or canvases. The
model's own embedding and linear layers are here, too, next to those that replace them.
"""

from quant.modules.embedding import QuantEmbedding
from quant.modules.experts import QuantExperts, RoutedExperts
from quant.modules.linear import QuantLinear
from quant.modules.swap import swap_modules
from quant.modules.tensor import QuantTensor

__all__ = ["QuantEmbedding", "QuantExperts", "QuantLinear", "QuantTensor", "RoutedExperts", "swap_modules"]
