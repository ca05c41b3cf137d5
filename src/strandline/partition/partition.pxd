# C types for partition.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.partition.producers cimport Producers

cdef class Partition:
    cdef public object advance_listeners, append_listeners, config, delayed, flusher, in_sync, log, runtime, serial_gate
    cdef public object on_failed, on_flushed, on_lag, on_proposal, tier, validation, verifies_transactions
    cdef public object topic, topic_id, index, leader_id, in_sync_count, partition_epoch
    cdef public Producers producers
    cdef public long long batches_in, bytes_in, bytes_out, unseen_bytes
    cdef public long long epoch_start_offset, high_watermark, opened_at_offset
    cdef public long leader_epoch
    cdef public bint flush_before_ack, is_internal, is_leader, is_watched

    @cython.locals(
        attributes=int, is_transactional=int, producer_id=cython.longlong, base_sequence=cython.longlong,
        base_offset=cython.longlong, last_offset=cython.longlong, last_offset_delta=cython.longlong,
        append_time_ms=cython.longlong,
    )
    cpdef append(self, batch, long long now_ms, bint is_opened=*, guard=*)
    cpdef on_appended(self, Py_ssize_t size_bytes)
    cpdef recount(self)
    cpdef advance(self, long long high_watermark)
