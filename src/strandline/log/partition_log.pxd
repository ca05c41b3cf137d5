# C types for partition_log.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

from strandline.log.segment.segment cimport Segment

cdef class PartitionLog:
    cdef public object directory, config, disk, open_files, observer, snapshots, leader_epochs, unsynced, noted, failure
    cdef public object on_failed, on_damaged, on_flushed, on_flush_wanted, on_write_failed, on_trimmed, remove_files
    cdef public object trimmed, swap, cut_offset
    cdef public list segments, base_offsets
    cdef public Segment active
    cdef public long long log_start_offset, log_end_offset, flushed_offset, learnt_from, tier_start_offset
    cdef public long long planned_start_offset, written_start_offset, tombstone_horizon, planned_tombstone_horizon
    cdef public long long appended_ms, cuts, synced_cuts, swaps
    cdef public bint has_aborted
    cdef long long _written_out_at

    @cython.locals(base_offset=cython.longlong, last_offset=cython.longlong)
    cpdef append(self, batch, header, long leader_epoch, long long now_ms)
    @cython.locals(segment=Segment, was_dirty=cython.bint)
    cdef _write(
        self, batch, long long base_offset, long long last_offset, long long max_timestamp_ms, long long now_ms
    )
    @cython.locals(segment=Segment)
    cpdef Segment segment_for(
        self, Py_ssize_t size_bytes, long long last_offset, long long max_timestamp_ms, long long now_ms
    )
