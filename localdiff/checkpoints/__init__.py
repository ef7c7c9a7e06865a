"""Models and adapters on this machine: from a name to a directory, its state, and what was found in it.

    model_reference      from the name of a model to its directory; what is an adapter or GGUF instead
    adapter_reference    from the name of an adapter to its directory
    model_store          the quantized models on this machine
    stored_model         one of these: its state, and what to do about it
    verification_record  what was found when all bytes of a model were last read
    weight_hashes        SHA-256 of weight files, read again only if they have changed
    directory_record     what is remembered of directories from one run to the next: a small file for each

Knows names, manifests and records; reads no weights but to hash them, and needs no torch.
"""
