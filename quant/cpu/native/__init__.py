"""Products of int8 activations with stored codes, in C, compiled on the machine that runs them.

    product.c, avx512.h, avx2.h    the kernel: tiles of a weight decoded in registers, and integer products
    build                          compiles it with the system's C compiler, once
    library                        calls it; the layouts of its arguments
    support                        whether it runs here, by trying
    products                       the products of experts and of linear layers

The weights stay as they are stored, and mapped from their files; nothing is converted when a model is loaded.
Activations are rounded to int8 with one scale per row and group of 64, nf4's levels to steps of 1/127.
"""
