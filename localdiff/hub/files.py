"""The files of a Hub repository that a model needs, by name.

Knows names; knows nothing about what is in the files.
"""

from __future__ import annotations

from quant import MANIFEST_FILE

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TEXT_FILES = (
    CONFIG,
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "chat_template.jinja",
)
NEEDED = (*TEXT_FILES, MANIFEST_FILE, "*.safetensors", "*.safetensors.index.json")
