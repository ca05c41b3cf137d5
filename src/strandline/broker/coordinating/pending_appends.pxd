# C types for pending_appends.py: Cython reads this file when it compiles the plain Python text beside it.

cdef class PendingAppends:
    cdef public bint closed
    cdef object _runtime, _partition, _on_failed, _held, _writing
    cdef list _unwritten
    cdef long long _append_number, _committed_number

    cdef _begin(self)
    cpdef flush(self)
    cdef _seal(self)
    cdef _append_share(self, number, list records)
    cdef _append_batch(self, records, on_committed)
    cdef _append_transactional(self, number, effect)
    cpdef on_committed(self, long long number, error)

cdef class _AppendCommitted:
    cdef PendingAppends _appends
    cdef long long _number

cdef Py_ssize_t _count_of_share(list records) except -1
cdef bytes _batch_of(records, now_ms)
