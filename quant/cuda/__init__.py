"""Fast NVIDIA GPU versions of the modules in `quant.modules`, and of experts with unquantized weights.

    support                         whether Triton works here, and what is missing
    triton_errors                   what an error of Triton or of a kernel means, and what helps
    tiles                           tile shapes of GEMMs, by the matrix instruction of a GPU
    timed                           tiles that were timed on this GPU and replace those, by the shape of a product
    launch_arguments                nf4's table, constants and the device that kernels are launched with
    layout                          codes and scales in the order in which kernels read them
    nf4_kernels                     bytes of nf4 to levels or weights, in one of four ways
    weight_kernels                  codes to weights, and products with them
    row_kernels, rows               activations as int8, one scale per row and group
    activation_kernels              GELU
    expert_kernels, experts         sorting rows by expert, and the two grouped GEMMs of all experts of a layer
    linear_kernels, linear          linear layers
    split_product                   a product with an unquantized weight of few rows, such as a router's, left in parts
    fused_projections               projections of the same rows as one GEMM
    overlapped_kernels              linear layers in Gluon, whose decoding overlaps with products; no tile uses them
    overlapped_expert_kernels       the same for experts
    embedding_kernels, embedding    output head, and self-conditioning over all ids
    soft_kernels, soft              self-conditioning over the probable ids alone
    decode_kernels, decode          nf4 decoded in one launch, where it is decoded before it is multiplied
    switches, choice                which module is replaced by which, on this GPU
    parity                          fast modules checked against plain ones, on this GPU

Each computes what its plain counterpart computes, within an error that its module states, and describes how in `path`.
None of them synchronizes with the host, so that a step over them can be captured in a CUDA graph. They know modules and
shapes; they know no names, files or canvases. The files that end in `_kernels` are device code in Triton, and are
imported only where Triton is known to run.
"""
