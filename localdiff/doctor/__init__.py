"""Checks, by trying, whether this machine can do what localdiff needs.

    checks                         every check, in the order in which they are shown, and how long it may take
    finding                        what a check found: a status, a sentence, and what to do
    settings, versions, terminal   look, and import no torch
    devices, disk, weights, hub    likewise
    torch_devices, recipes         ask torch and the memory account
    product, denoise, kernels      compute, and compare with what is right
    field_report                   the findings without anything that names a person, a machine or a private model

Knows what to ask of which part; knows nothing about options. "It can be imported" is never taken for "it works".
"""
