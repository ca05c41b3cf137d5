# C types for log_slice.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.log.segment.segment cimport Segment

cdef class LogSlice:
    cdef public object segment
    cdef public long long position, size_bytes

@cython.locals(boundary=cython.longlong, first=cython.longlong)
cpdef long long slice_size(
    Segment segment, long long position, long long end, long long size_bytes_max, bint at_least_one, bint may_block
) except -1
