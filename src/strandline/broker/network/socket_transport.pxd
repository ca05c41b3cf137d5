# C types for socket_transport.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cdef class ReceiveBuffer:
    cdef object _whole
    cdef public object view

cdef class SocketTransport:
    cdef object _hangups, _loop, _runtime
    cdef readonly object _socket
    cdef object _out
    cdef int _fd, _misses
    cdef bint _reading, _writing, _filling
    cdef Py_ssize_t _sent
    cdef public ReceiveBuffer buffer
    cdef public object receiver, peer_host
    cdef public Py_ssize_t unsent_bytes
    cdef public bint closed, is_congested

    @cython.locals(size=Py_ssize_t)
    cpdef _on_readable(self)
    @cython.locals(sent=Py_ssize_t)
    cpdef send(self, bytes data)
    cpdef send_pieces(self, list pieces)
    @cython.locals(budget=Py_ssize_t, size=Py_ssize_t, sent=Py_ssize_t)
    cpdef _drain(self)
    @cython.locals(room=Py_ssize_t, skipped=Py_ssize_t, size=Py_ssize_t)
    cdef list _gather(self, out)
    @cython.locals(size=Py_ssize_t)
    cdef _advance(self, out, Py_ssize_t sent)
