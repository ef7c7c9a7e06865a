"""Low-rank adapters (LoRA) beside a model's own weights, in PEFT's layout.

    targets    what can be adapted, and what the released checkpoint calls it
    lowrank    the term that is added to a projection, for encoder rows, canvas rows, or both
    modules    the modules that add it: linear layers and experts; which rows of a pass are canvas rows
    attach     puts them into a model, and finds them there
    fresh      makes a new adapter, to be trained
    save       writes the two files, with a fingerprint of the weights that the adapter belongs to
    config     adapter_config.json, and which of its keys are refused
    keys       parses names of tensors
    stored     reads the two files, every tensor accounted for
    loaded     a stored adapter for one model, or as the start of a training

Knows modules and files; knows nothing about sampling or text. Nothing is merged: the model's weights stay as they are,
quantized or not.
"""

from localdiff.adapter.fresh import add_adapter
from localdiff.adapter.loaded import Adapter, copy_factors, open_adapter
from localdiff.adapter.save import save_adapter
from localdiff.adapter.stored import StoredAdapter

__all__ = [
    "Adapter",
    "StoredAdapter",
    "add_adapter",
    "copy_factors",
    "open_adapter",
    "save_adapter",
]
