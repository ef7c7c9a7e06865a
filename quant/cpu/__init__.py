"""Quantized modules that are fast on a processor, beside the plain ones of `quant.modules`.

    bitsandbytes_library   NF4 decoded by bitsandbytes' vector code
    rows                   activations as int8, a scale a row
    int8_weight            weights as int8, a scale a row, in oneDNN's own layout
    products               one tensor of experts times the rows that chose each
    experts, linear, embedding    the modules
    choice                 which module is replaced by which, on this machine

Each computes what its plain twin computes, within an error that its own page tells, and says in `path` how it does so.
They know modules and shapes; they know no names, files or canvases.
"""

from .choice import prepare

__all__ = ["prepare"]
