"""Observers of a generation, and the terminals, pipes and files that they write to.

    watch                                   how a run is watched
    live, painter, region, mailbox          the live canvas: thread, frames, rows on the screen, hand-over of frames
    reply                                   what a run has produced so far
    run_printer, text_writer                the answer of a run as text, on its way to a stream
    footer                                  the figures of a run, and how it ended, in words
    jsonl, summary                          every event as a line of JSON; a whole run as one object
    output                                  both streams, and what may be written to them
    standard_streams                        stdout and stderr that lose nothing, on full disks and non-blocking pipes
    status, progress, rate                  one moving line and the log above it, bars, time left
    terminal, console                       what is known about a terminal; the Windows console
    console_keys                            the keys of the Windows console
    terminal_guard, terminal_signals        how a terminal is restored, whatever ends the process
    progress_terminal                       the same for a terminal with progress bars
    interrupt, question                     Ctrl-C while a model is loaded or answers; yes or no
    keyboard_modes                          what a terminal does with keys, so that none is echoed into the picture
    replay_screen                           the terminal during a replay

Knows events and streams; knows nothing about the engine, and never imports torch.
"""
