"""Checks, by trying, whether this machine can do what localdiff needs.

    finding    what a check found: a status, a sentence, and what to do
    checks     every check, in the order in which they are shown
    versions, devices, disk, weights, terminal                 look, and import no torch
    product, denoise                                           compute, and compare with stored values
    recipes, torch_devices                                     ask torch and the memory account
    values     the stored values; `python -m localdiff.doctor.write_values` makes them
    field_report  the findings without anything that names a person, a machine or a private model

Knows what to ask of whom; knows nothing about options. "It can be imported" is never taken for "it works".
"""
