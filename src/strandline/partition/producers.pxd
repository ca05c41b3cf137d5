# C types for producers.py: Cython reads this file when it compiles the plain Python text beside it.

cdef class ProducerEntry:
    cdef public long epoch, coordinator_epoch
    cdef public long long last_sequence, last_timestamp_ms, appended_ms
    cdef public list recent

cdef class Producers:
    cdef public object completed, entries, limit, first_unstable_offset, verifications
    cdef public dict open_transactions, refused
