"""A GPU in numpy: compiled kernels run instruction by instruction on a CPU, from their PTX.

Triton's interpreter runs the kernel's source; this runs what Triton compiles it to for one kind of GPU: bf16, the
machine instructions that kernels contain, exchanges between the lanes of a warp, matrix instructions with the layouts
of their operands, copies that are under way until they are waited for. Every address is checked against the
allocations, and for its alignment; memory that a copy is writing holds NaN until the copy has been waited for; it is an
error if two warps access the same memory without a barrier between them and one of them writes.

It is slow, knows only the instructions that our kernels are compiled to, refuses any other, down to each part of its
name, and says nothing about speed or about the last bits of a GPU's approximations. It does not find sums of `wgmma`
read before they have been waited for, missing fences, or races within a warp, of single bytes or of atomic sums.
What each instruction does is specified in NVIDIA's PTX ISA.

| module | knows |
|---|---|
| `syntax` | the text of a kernel: instructions, operands, labels |
| `lanes` | registers of all threads, and which threads take part |
| `numbers` | bf16, and rounding to it once |
| `memory` | allocations and shared memory, with bounds and alignment; copies under way |
| `races` | warps that access the same memory with no barrier between them |
| `arithmetic` | instructions that a thread does by itself |
| `transfers` | loads, stores, atomic sums, asynchronous copies |
| `exchange` | instructions of a warp: shuffles, votes, sums |
| `matrices` | instructions of a warp over matrices: `ldmatrix`, `stmatrix`, `mma` |
| `warpgroup` | `wgmma`: matrices in shared memory, by their descriptors |
| `machine` | blocks of threads from their first instruction to their last: branches and barriers |
| `gpu` | launches of kernels over tensors of the CPU |
"""
