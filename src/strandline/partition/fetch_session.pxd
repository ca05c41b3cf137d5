# C types for fetch_session.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cdef class FetchEntry:
    cdef public object key, partition
    cdef public FetchSession session
    cdef public long long fetch_offset, size_bytes_max, sent_high_watermark, sent_log_start_offset
    cdef public long current_leader_epoch, last_fetched_epoch

cdef class FetchSession:
    cdef public dict entries, news
    cdef public object waiter
    cdef public long id, epoch
    cdef public bint uses_topic_ids
    cdef public double used_at
    cdef public Py_ssize_t waits
