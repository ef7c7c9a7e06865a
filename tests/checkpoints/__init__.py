"""Checkpoints, and parts of them, that a test can write.

    layouts         random ones, written by `transformers` in every layout that localdiff must read
    weights         a small one that can be loaded, its vision tower in a file of its own
    quantized       what a job makes of a checkpoint
    four_layers     one of four layers, as it is published and in two recipes
    manifest        one with an entry of every kind, and nothing behind it
    tokenizers      small `tokenizer.json` files of every kind
    chats           the released templates, with chats that use every feature of theirs
    released        the released 26B: names, shapes and configuration
    full_width      random weights at its full width: `python -m tests.checkpoints.full_width DIRECTORY`

`layouts`, `weights` and `released` know nothing of localdiff or of its packages.
"""
