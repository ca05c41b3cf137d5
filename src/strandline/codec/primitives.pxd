# C types for primitives.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(first=int)
cpdef tuple read_uvarint(buffer, Py_ssize_t position)

@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=int)
cpdef tuple read_uvarint_tail(int first, buffer, Py_ssize_t position)
