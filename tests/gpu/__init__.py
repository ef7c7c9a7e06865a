"""What can be learned about GPUs without one.

    kernels             where tests of kernels run: on a GPU, else in Triton's interpreter
    interpreter         that interpreter, without what it would compute again and again
    kernels_aot         every kernel compiled for every kind of GPU: `make kernels-aot`
    machine_code        what can be seen in a kernel's machine code
    specializations     what the released model launches, found without computing numbers
    launches            what a layer of a step launches: `python -m tests.gpu.launches`
    graphs              a stand-in for CUDA graphs
    host                a stand-in for a card, to test what the host does: with `graphs`, and
    queue               its streams, events and copies, which arrive late
    on_card             its tensors, which refuse tensors of the host
    ptx                 an emulated GPU, which runs compiled kernels: `make kernels-ptx`

On a machine with a GPU, kernels run on it.
"""
