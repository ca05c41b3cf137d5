# C types for k00_produce.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

@cython.locals(
    acks=int, index=int, now_ms=cython.longlong, base_offset=cython.longlong, commits_at=cython.longlong,
    append_time_ms=cython.longlong,
)
cdef _append_all(node, request, asked, list results, list waits, verdicts, guard, to_open)
cdef bytes _encode(node, list results, int version, int throttle_ms, connection)

cdef class PartitionWait:
    cdef public Py_ssize_t position
    cdef public ProduceWait wait

    cpdef on_commit(self, int error_code)

cdef class ProduceWait:
    cdef public object node, exchange
    cdef public list results
    cdef public set outstanding
    cdef public int version, throttle_ms
    cdef public double deadline
    cdef public bint done

    cpdef answer(self)
