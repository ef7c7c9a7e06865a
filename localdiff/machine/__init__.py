"""What the operating system provides: processes, threads, memory, disks and files, with what differs among systems.

    hardware      names of devices
    host_memory   memory of the machine
    disk_space    whether what will be written fits on each disk; what is free once something is deleted
    private_file  files that only their owner can read
    output_lock   one process at a time per output: a file beside it, locked until the process ends
    children      child processes that Ctrl-C must not reach
    abandonable   threads that need not end before the program does
    garbage       what Python need not look at when it collects garbage

Knows nothing about models.
"""
