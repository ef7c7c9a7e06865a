"""Tests, and what they need.

    localdiff, quant              tests, each where the package has the code under test
    test_imports, test_docs       what holds for the whole tree and for the pages of `docs/`

    models          models for whole generations, and helpers for any model: caches, bytes held, a reference
    checkpoints     random ones in every layout, small files of weights, tokenizers; the released model's shapes
    fakes           scripted runs and chat models, and a Hub; with the command line in front if needed
    screens         the command line as a process, terminals in memory, a headless browser
    gpu             GPUs without a GPU: kernels interpreted or compiled, launches counted, graphs replayed

    bench           measurements; each says how it is run
    pages           scripts that write pages and pictures of `docs/`
    data, golden    texts and numbers of the released model; screens to compare with

This is a package so that `tests` never means a package of that name that came with an installed library.
"""
