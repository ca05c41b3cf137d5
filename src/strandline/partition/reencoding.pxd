# C types for reencoding.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(count=cython.longlong, size=cython.longlong, end=cython.longlong)
cpdef opened_now(batch, tuple header, config, validation=*)
