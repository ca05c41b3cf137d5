"""What every part takes from its surroundings: clock, timers, threads, randomness, loggers and fault points.

A node gets one `Runtime`, and the simulator passes its own. So parts of a node that run in the simulator take the time,
timers, threads and random numbers from it, and never from Python's modules. `time_slicing` spreads long work over the
turns of the loop; `fault_points` are the named places at which a test kills or fails a process.
"""
