"""What every part takes from its surroundings: clock, timers, threads, randomness and loggers.

A node gets one `Runtime`. The simulator hands in its own, so nothing outside this package reads the clock or starts a
thread by itself.
"""
