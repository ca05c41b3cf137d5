# C types for produce.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cpdef parse_produce(view, Py_ssize_t at, int version)
cdef Py_ssize_t _head_end(view, Py_ssize_t at, int version) except -1
@cython.locals(end=Py_ssize_t, size=Py_ssize_t)
cdef _parse_known(view, Py_ssize_t at, int version)
cpdef bytes encode_produce_response(list results, int version, bytes endpoints=*)
cdef bytes _encode_result(result, int version)
