"""Observers of a generation, and the terminals, pipes and files that they write to.

    watch                                   how a run is watched
    live, painter, region, mailbox          the live canvas: thread, frames, rows on the screen, what passes between
    reply                                   what a run has brought so far
    run_printer, text_writer                the answer of a run as text, on its way to a stream
    footer                                  its figures, and how it ended, in words
    jsonl, summary                          every event as a line of JSON; a whole run as one object
    output                                  both streams, and what may be written to them
    standard_streams                        that nothing is lost there, on full disks and pipes that do not block
    status, progress, rate                  one line that moves and the log above it, bars, time that is left
    terminal, console                       what is known of a terminal; that of Windows
    console_keys                            the keys of the latter
    terminal_guard, terminal_signals        how it is restored, whatever ends the process
    progress_terminal                       the same where bars are drawn
    interrupt, question                     Ctrl-C while a model is loaded or answers; yes or no
    keyboard_modes                          what a terminal does with keys; that none is echoed into what is drawn
    replay_screen                           the terminal during a replay

Knows events and streams; knows nothing about the engine, and never imports torch.
"""
