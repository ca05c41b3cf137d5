# C types for disk.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cdef class RealFile:
    cdef int _fd

    @cython.locals(written=Py_ssize_t)
    cpdef write_at(self, long long position, data)
    cpdef read_at_nowait(self, long long position, Py_ssize_t size)
    cpdef bint is_cached(self, long long position) except -1
