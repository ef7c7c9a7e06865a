"""The files of a checkpoint beside its weights, by name; those of weights are named in `quant.files.source`.

Knows names; knows nothing about what is in the files.
"""

from __future__ import annotations

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
TEXT_FILES = (CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE)
"""All of them, as they are downloaded, and copied beside quantized weights."""
