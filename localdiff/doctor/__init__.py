"""Checks, by trying, whether this machine can do what localdiff needs.

    checks          every check, in the order in which they are shown
    limits          how long a check may take
    finding         what a check found: a status, a sentence, and what to do
    settings, versions, devices, disk, weights, hub, terminal   look, and import no torch
    torch_devices, recipes                                      ask torch and the memory account
    product, denoise, kernels                                   compute, and compare with stored values
    native_kernel                                               compiles, and compares with exact sums
    values          the stored values; `python -m localdiff.doctor.write_values` makes them
    pattern         numbers that are the same everywhere
    field_report    the findings without anything that names a person, a machine or a private model

Knows what to ask of whom; knows nothing about options. "It can be imported" is never taken for "it works".
"""
