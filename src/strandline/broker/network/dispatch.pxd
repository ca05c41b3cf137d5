# C types for dispatch.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.broker.network.connection cimport Exchange

cdef class RequestContext:
    cdef public object node, route, client_id, client_host, guard, amend
    cdef Exchange _exchange
    cdef public int api_version

cdef class Dispatcher:
    cdef public object node, listener, listener_name, is_active, forward, clock_ns, window_clock_ns, current, slow, limits
    cdef public object sasl, quotas
    cdef public dict routes
    cdef dict _software
    cdef public long long received_ns
    cdef long long _window, _begun_before

    @cython.locals(at=Py_ssize_t, began_ns=cython.longlong)
    cpdef start(
        self, connection, view, int api_key, int version, long long correlation_id, Py_ssize_t client_id_size
    )
