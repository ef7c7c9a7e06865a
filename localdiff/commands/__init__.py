"""One module per command: carries out what the command line asks for, using the other packages.

    run, chat, quantize, replay, models          the commands of these names; `chat` and `quantize` are packages
    tune, doctor, config                         likewise
    trace_check, trace_diff, trace_pair          `trace`
    bench_step, bench_quality                    `bench`

    model_choice, loading                        which model is loaded, and what is shown meanwhile
    prompt                                       the user's prompt, and what is shown while it is read
    live                                         the canvas that options ask for
    output_file, run_file                        files of `-o`; files written as a run happens, such as `--events`
    delivery                                     where an answer goes: the file of `-o`, or stdout in its place
    record                                       `--record`, and the header of a trace

Knows the order of steps, files and streams; knows nothing about tensors or drawing.
"""
