"""Tests, and what they need.

    localdiff, quant        tests, each where the package has what is tested
    test_imports, test_docs what holds for the whole tree and for the pages of `docs/`

    models                  a model for whole generations, and what can be said of any: caches, bytes held, a referee
    checkpoints             random ones in every layout, small files of weights, tokenizers; the released model's shapes
    fakes                   runs, partners and a Hub that are scripted, behind the command line where that is wanted
    screens                 the command line as a process, terminals in memory, a headless browser
    gpu                     GPUs without a GPU: kernels interpreted or compiled, launches counted, graphs replayed

    bench                   measurements; each says how it is run
    pages                   what writes pages and pictures of `docs/`
    data, golden            texts and numbers of the released model; screens to compare with

A package, so that no other one of this name, which some installed library brings along, is taken for it.
"""
