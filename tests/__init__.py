"""Tests, and what they need.

    localdiff, quant                          tests, each where the package has what is tested
    bench                                     measurements; each says how it is run
    data, golden                              texts and numbers of the released model; screens to compare with

    tiny, steps, caches                       a model for whole generations, denoisers of any path, caches compared
    fakes, fakes_chat, scripted_cli           a scripted engine, a scripted partner, the command line with the former
    fakes_canvas, canvas_player, traces       runs that look like real ones: events, in real time, as traces
    speaking, chats                           a real model with a script in its mouth; chats and released templates
    checkpoints, small_weights, quantized     random checkpoints, weight files alone, and what a job makes of one
    small_tokenizers, full_width              tokenizers of every kind; weights at the released width
    reference, released                       what `transformers` computes; the released model's names and shapes
    kernels, kernels_aot, specializations     where kernels run; all of them compiled, for what passes launch
    graphs, launches                          CUDA graphs without a card; what a step launches
    allocations, held                         bytes held at once, and those that a plan foretells
    processes, screens, renderable, hostile   the command line as a process, terminals in memory, text that attacks
    browser, fake_hub                         a headless browser, a small Hub
    cli_reference, terminal_page              write pages of `docs/`
    canvas_picture, chat_screens              likewise

A package, so that no other one of this name, which some installed library brings along, is taken for it.
"""
