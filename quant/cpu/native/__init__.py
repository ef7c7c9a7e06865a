"""Kernels in C, compiled on the machine that runs them: products with stored codes, soft embeddings, attention,
statistics of logits.

    product.c, product.h                 products: tiles of a weight decoded in registers, and integer products
    tiles.c, tiles.h                     the same products by AMX, to the same bits
    attention.c, words.h                 softmax attention in bf16, and the numbers that it multiplies: bf16 or fp32
    soft_embedding.c                     means of the rows of an int8 table under the softmax of logits
    logits.c                             statistics of logits, an id drawn from each row, and scores in their place
    vectors.h, avx512.h, avx2.h          vectors of this CPU
    exponential.h                        exp of such a vector
    stored.h, counter.h                  how quantized weights are stored; how threads share work
    build                                compiles them with the system's C compiler, once
    library                              calls the products; the layouts of their arguments
    attention, soft_embedding, logits    do the same for the other kernels
    calls                                what these share: functions of the library, called in several threads
    support                              whether the kernels run here, by trying them
    correctness                          whether they then compute what they should

The weights stay as they are stored, and mapped from their files; nothing is converted when a model is loaded.
Activations are rounded to int8 with one scale per row and group of 64, nf4's levels to steps of 1/127.
"""
