"""Traces of runs: written as they happen, read strictly, played, exported and compared.

    trace, header                       a recorded run in memory, and its first line
    recorder, lines, packing            an observer that writes one; its lines, and the arrays in them
    reader, order                       reads one, and refuses what no run can have done
    opening                             by the name that a user gives; `example` ships with the package
    hashing                             of weights, vocabulary and adapters
    repeat, runs                        what a rerun must give; the rerun, and runs with the same noise
    timeline, player, replay_view       moments of a run, playback, and its screen
    exports, page, comparison           other forms: text, animations, pages; two traces side by side

Knows events; only `runs` knows an engine, and so needs torch.
"""
