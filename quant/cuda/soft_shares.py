"""The number of partial sums of a soft embedding. Imports nothing, so that an estimate of memory can ask for it."""

SHARES = 11
"""Parts of the vocabulary, each summed in fp32 by programs of its own: 484 programs for 256 rows at the released width.

By the registers that they take, one fits a multiprocessor of an RTX GPU and two fit one of an H100, and so they go into
six rounds of an RTX 3090's 82, four of a 4090's 128, three of a 5090's 170 and two of an H100's 132, each 92 to 98 %
full. The account of memory (`localdiff.memory_account`) knows the number, since a recorded step keeps these sums.
"""
