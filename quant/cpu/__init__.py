"""Fast CPU versions of the quantized modules in `quant.modules`.

    bitsandbytes_library   NF4 decoded by bitsandbytes' SIMD code
    rows                   activations as int8, one scale per row
    int8_weight            weights as int8, one scale per row, in oneDNN's own layout
    native                 products from stored codes, soft embeddings, logits and attention, by kernels in C, which are
                           compiled on this machine
    products               one stacked tensor of experts times the rows routed to each
    experts, linear, embedding    the modules
    parallel               small products distributed over threads
    memory                 pages of converted weights released, freed memory kept for the next pass
    switches, choice       which module is replaced by which on this machine, and what computes attention

Each computes what its plain counterpart computes, within an error that its module states, and describes how in `path`.
They know modules and shapes; they know no names, files or canvases.
"""
