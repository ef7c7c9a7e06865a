"""The small checkpoint that ships with the package: what it was trained on, how often it is right, and its training.

    skills, corpus                            what it can do, as prompts and answers; their mixture
    evaluate, scoring                         how often it is right
    estimate                                  means with 95 % intervals
    leaving                                   how the commands end after an error
    training                                  how it was made, and its adapters; not in the wheel

Knows skills and answers; knows nothing about `training`, which is run by hand.
"""
