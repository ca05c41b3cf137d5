# C types for fetch_attempt.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.partition.fetch_session cimport FetchSession

cdef class FetchAttempt:
    cdef public object node, exchange, guard, rack_id, tiered
    cdef public FetchSession session
    cdef public int version, isolation_level
    cdef public bint is_full
    cdef public long long size_bytes_max, size_bytes_min, wait_ms
    cdef public object _available, _timer
    cdef public int _cold_lookups
    cdef public list _leader_ids

    @cython.locals(size=cython.longlong, is_urgent=cython.bint, results=list)
    cpdef look(self)
