"""What `localdiff quantize` does, except printing: where weights come from, what is planned, what is fetched.

    request                   what a user asks for
    origin                    a checkpoint by its headers, in a directory or on the Hub
    finished                  whether a finished output is the one requested
    planned_job               a job before it starts, and the disk space that it needs
    memory_to_run             the memory that its result takes once it runs, and whether a GPU here has it
    plan_summary              the plan as text, for the user to agree to
    weight_fetcher            weight files, downloaded when the job needs them
    card                      model card, notice of changes, licence

Knows models, the Hub and disks; asks no questions and prints nothing: `localdiff.commands.quantize` does.
"""
