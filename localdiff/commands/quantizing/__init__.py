"""The parts of `localdiff quantize`: where weights come from, what is planned, what it needs, what is shown.

flow                        the steps, in order
request                     what the command line asks for
encoding                    the device that encodes
origin, fetching            a checkpoint by its headers, and its files when they are needed
finished, verification      whether an output is the one that is asked for, and sound
prospect, space, sheet      a job before it starts, the disks that it needs, and the sheet that says so
lock, display               one job at a time for an output, and its progress
card                        model card, notice of changes, licence
"""
