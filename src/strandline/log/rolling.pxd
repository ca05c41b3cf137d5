# C types for rolling.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.log.segment.segment cimport Segment

@cython.locals(began_ms=cython.longlong, age_ms=cython.longlong)
cpdef bint is_due_to_roll(
    Segment segment, config, long long last_offset, long long max_timestamp_ms, long long now_ms
) except -1
