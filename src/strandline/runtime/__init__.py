"""What every part takes from its surroundings: clock, timers, threads, randomness, loggers and fault points.

A node gets one `Runtime`. The simulator passes its own, so nothing outside this package reads the clock or starts a
thread by itself.
"""
