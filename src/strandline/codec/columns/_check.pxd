# C types for _check.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

@cython.locals(value=uint64, byte=uint64, shift=int, index=Py_ssize_t)
cdef (uint64, Py_ssize_t) long_varint(const unsigned char[::1] payload, Py_ssize_t position, int bytes_max) except *

@cython.locals(length=int64)
cdef Py_ssize_t skip_headers(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t count, Py_ssize_t record_end
) except -1

@cython.locals(
    record_end=Py_ssize_t, length=int64, delta=uint64, timestamp_delta=int64, timestamp_delta_min=int64,
    timestamp_delta_max=int64, byte=uint64, keyless_max=Py_ssize_t,
)
cpdef Py_ssize_t check_records(
    const unsigned char[::1] payload,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t row,
    Py_ssize_t row_end,
    int64 base_timestamp,
    list keyless,
) except -1
