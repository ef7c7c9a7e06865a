"""How the small checkpoint and its adapters are made.

    architecture, vocabulary, turns           shape, tokens and chat template
    rendering, batches                        examples as token ids; training canvases
    train, trainer, work                      the command, its loop, its folder with the log
    muon, team                                one update: optimizer, processes
    mean, export                              from checkpoints of a training to the one that ships
    adapt                                     trains an adapter

Knows the released layout and the sampler; knows nothing about terminals. Nothing outside of it imports it, so that
the wheel can do without it: training works from a clone of the repository.
"""
