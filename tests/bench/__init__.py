"""Measurements, each run as `python -m tests.bench.NAME`.

    gpu                               everything that needs a GPU, in one call: `make bench-gpu`
    gpu_attention, gpu_transformers   parts of it: attention of a layer, and a step beside `transformers`
    gpu_kernels, gpu_tests            parts: time by kernel in replayed steps, and the tests that need a GPU
    gpu_products, gpu_tiles           parts: single products, with the chosen tiles and with others
    gpu_limits                        a part: what the experts wait for
    gpu_repeats                       a part: one block many times, which must give the same bits
    gpu_stream                        a part: a step with layers that are streamed from host memory
    gpu_subject                       the model that these parts measure
    gpu_clock, gpu_process            its clock, and its processes: one that crashes leaves the GPU to the next
    gpu_card, gpu_peak                which card it is, with which torch, Triton and commit; its peak of memory
    gpu_results                       its figures as they are written, and the tables of `docs/` made of them
    tuning_noise                      how often `localdiff tune` is fooled by noise, without a GPU
    inner_loops                       instructions of the kernels' inner loops, without a GPU
    step_bounds                       the least time of a step on cards that nobody has timed, without a GPU

    against_transformers              one forward both ways, on random weights in the released shapes
    reference_weights                 those weights in the model of `transformers`
    cpu_attention, cpu_embedding      attention and the tied embedding on a CPU, with and without the kernel in C
    cpu_logits                        the same for reading logits
    one_thread                        how these three measure
    expert_decode                     experts on a CPU: where time goes, and in which kernel
    load_parts                        a load on a CPU, by its parts

    quality_table, quality_variants   what each number format costs the demo model in answers
    int8_parity, error_table          the same for int8 activations; errors of each codec
    batching                          several generations in one pass, for these tables
    first_prompts, live_prompts       the demo model's answers to first prompts; the prompts that best show the canvas

    live_cost                         what the live canvas costs
    page_open                         how large the page of a trace is, and how long it takes to open

The results are in `docs/`, with the machine. No test asserts a time.
"""
