# C types for segment.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

cdef class Segment:
    cdef public object path, disk, open_files, want_flush, replacement, newest_read, sync_error
    cdef public object counts, delivered, unverified
    cdef object _file, _run, _index, _time_index, _transaction_index
    cdef public long long base_offset, size_bytes, bytes_since_index_entry, index_interval_bytes, verified_from
    cdef public long long created_ms, first_timestamp_ms, max_timestamp_ms, offset_of_max_timestamp
    cdef public long long tail_start, references
    cdef public list tail_offsets, tail_positions
    cdef public bint is_active, is_preallocated, dirty, deleted, touched, has_transaction_index

    @cython.locals(position=cython.longlong)
    cpdef append(self, batch, long long base_offset, long long last_offset, long long max_timestamp_ms)
    @cython.locals(since=cython.longlong, tail=list)
    cpdef note_batch(
        self, long long base_offset, long long last_offset, long long max_timestamp_ms, long long position,
        long long size_bytes
    )
