# C types for record_batch.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(
    header=tuple, length=cython.longlong, magic=int, attributes=int, last_offset_delta=cython.longlong,
    record_count=cython.longlong, size=Py_ssize_t,
)
cpdef tuple check_batch(batch)
