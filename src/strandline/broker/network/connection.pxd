# C types for connection.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cdef class Exchange:
    cdef public object connection, answer, on_abandoned, meter
    cdef public long long correlation_id, started_ns
    cdef public bint flexible_header, is_produce, has_waited

    cpdef reply(self, body)
    cpdef reply_pieces(self, list pieces, size)

cpdef bytes frame(long long correlation_id, bint flexible_header, Py_ssize_t body_size)

cdef class Connection:
    cdef public object dispatcher, limits, transport, inbox, started, session, software, gate, quota
    cdef public Py_ssize_t inbox_at, needed
    cdef public long long used_at, number
    cdef public bint paused, muted, closed, has_asked

    @cython.locals(done=Py_ssize_t)
    cpdef receive(self, view)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, room=int, size=Py_ssize_t, body=Py_ssize_t, size_max=Py_ssize_t)
    cdef Py_ssize_t _start_requests(self, view) except -1
    @cython.locals(done=Py_ssize_t)
    cdef _work_off_inbox(self)
    cdef _note_waiting(self)
    cdef bint _may_start(self, api_key) except -1
    cdef _pause(self)
    cpdef go_on(self)
    cpdef reply_now(self, correlation_id, flexible_header, body)
    cpdef finish(self, Exchange exchange, list answer)
