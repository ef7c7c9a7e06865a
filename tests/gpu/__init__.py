"""What can be said of GPUs without one.

    kernels             where tests of kernels run: on a GPU, else in Triton's interpreter
    interpreter         that interpreter, without what it computes over and over
    kernels_aot         every kernel compiled for every kind of GPU: `make kernels-aot`
    machine_code        what can be seen in the machine code that is made of one
    specializations     what the released model launches, found without numbers
    launches            what a layer of a step launches: `python -m tests.gpu.launches`
    graphs              a stand-in for CUDA graphs
    host                a card that is not there, for what the host does: with graphs, and
    queue                   its streams, events and copies, which arrive late
    on_card                 its tensors, which refuse those of the host
    ptx                 an emulated GPU, which runs compiled kernels: `make kernels-ptx`

Where there is one, kernels run on it.
"""
