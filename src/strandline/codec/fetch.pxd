# C types for fetch.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(flexible=cython.bint, topics=Py_ssize_t, count=Py_ssize_t)
cdef _parse(view, Py_ssize_t at, int version)
cdef tuple _read_topic(view, Py_ssize_t at, int version)
cdef tuple _read_partition(view, Py_ssize_t at, int version, topic)
