# C types for wire.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(count=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t skip_tags(view, Py_ssize_t at) except -1

@cython.locals(size=Py_ssize_t, end=Py_ssize_t)
cpdef tuple read_name(view, Py_ssize_t at, bint flexible)

@cython.locals(count=Py_ssize_t)
cpdef tuple read_count(view, Py_ssize_t at, bint flexible, Py_ssize_t element_size_min)
