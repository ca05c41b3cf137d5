# C types for _scan.py. Cython reads this file when it compiles the plain Python text beside it.
# cython: language_level=3

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

@cython.locals(value=uint64, byte=uint64, shift=int, index=Py_ssize_t)
cdef (uint64, Py_ssize_t) varint_raw(const unsigned char[::1] payload, Py_ssize_t position, int bytes_max) except *

@cython.locals(length=int64)
cdef Py_ssize_t skip_headers(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t count, Py_ssize_t record_end
) except -1

@cython.locals(
    end=Py_ssize_t, position=Py_ssize_t, record_end=Py_ssize_t, row=Py_ssize_t,
    length=int64, delta=uint64, timestamp_delta=int64, offset_delta=int64, offset_delta_min=int64,
)
cpdef Py_ssize_t scan_records(
    const unsigned char[::1] payload,
    Py_ssize_t count,
    int64 base_offset,
    int64 last_offset_delta,
    int64 base_timestamp,
    int64 timestamp_delta_min,
    int64 timestamp_delta_max,
    int64[::1] offsets,
    int64[::1] timestamps,
    int[::1] key_start,
    int[::1] key_length,
    int[::1] value_start,
    int[::1] value_length,
    int[::1] header_start,
    int[::1] header_count,
) except -1
