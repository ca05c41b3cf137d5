# C types for plain_commits.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.broker.network.connection cimport Exchange as CompiledExchange
from strandline.coordinators.offsets.plain_commit cimport PlainCommit as CompiledPlainCommit

@cython.locals(is_flexible=bint, end_at=Py_ssize_t, plain=CompiledPlainCommit, waiting=PlainWait, fields=tuple)
cpdef start(node, connection, view, Py_ssize_t at, int version, correlation_id)

cdef class PlainWait:
    cdef CompiledPlainCommit _plain
    cdef public CompiledExchange exchange
