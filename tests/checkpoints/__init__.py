"""Checkpoints, and parts of them, that a test can write.

    layouts         random ones, written by `transformers` in every layout that localdiff must read
    weights         a small loadable one, with its vision tower in a file of its own
    quantized       what a job makes of a checkpoint
    four_layers     one of four layers, as published and in two recipes
    manifest        a manifest with an entry of every kind, and no files
    tokenizers      small `tokenizer.json` files of every kind
    chats           the released templates, with chats that use all their features
    released        the released 26B: names, shapes and configuration
    full_width      random weights at its full width: `python -m tests.checkpoints.full_width DIRECTORY`

`layouts`, `weights` and `released` know nothing of localdiff or of its packages.
"""
