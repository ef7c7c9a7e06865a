"""The small checkpoint that ships with the package: its data, its training and its evaluation.

    architecture, vocabulary, turns           shape, tokens and chat template
    skills, corpus, batches                   what it can do, as prompts and answers; their mixture; training canvases
    train, training, work, journal, leaving   the command, its loop, its folder, its log, its errors
    rollout, muon, team                       one update: the sampler's own canvases, optimizer, processes
    compiled_layer_ops                        layer ops under `torch.compile`
    evaluate, scoring                         how often it is right
    mean, export                              from checkpoints of a training to the one that ships
    adapt                                     trains an adapter

Knows the released layout and the sampler; knows nothing about terminals.
"""
