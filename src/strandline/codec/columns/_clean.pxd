# C types for _clean.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

cdef Py_ssize_t BLOCK_ROWS
cdef int DROPPED
cdef int KEPT
cdef int ASKED

@cython.final
cdef class RecordSieve:
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t entries_max
    cdef readonly Py_ssize_t entries
    cdef uint64[::1] table
    cdef bytes secret
    cdef uint64 start0
    cdef uint64 start1
    cdef uint64 start2
    cdef uint64 start3
    cdef uint64 mask
    cdef bint compiled
    cdef uint64 hash_low
    cdef uint64 hash_high
    cdef readonly int64 next_offset
    cdef int64 offset_max
    cdef int64[::1] places
    cdef uint64[::1] lows
    cdef uint64[::1] highs
    cdef int64[::1] offsets
    cdef int64[::1] starts
    cdef int64[::1] ends
    cdef int64[::1] timestamps
    cdef int64[::1] fates
    cdef int64[::1] is_tombstone
    cdef const unsigned char[::1] payload
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int64 offset_delta
    cdef int64 timestamp_delta
    cdef Py_ssize_t key_start
    cdef Py_ssize_t key_length
    cdef Py_ssize_t value_length
    cdef readonly int64 learned_offset
    cdef readonly Py_ssize_t kept
    cdef readonly Py_ssize_t run_count
    cdef readonly int64 max_timestamp
    cdef readonly Py_ssize_t kept_tombstones
    cdef readonly int64 records_sifted
    cdef readonly int64 records_kept
    cdef readonly int64 records_without_key
    cdef readonly int64 tombstone_removed

    @cython.locals(
        mask=uint64, v0=uint64, v1=uint64, v2=uint64, v3=uint64, word=uint64, byte=uint64, at=Py_ssize_t,
        rest=Py_ssize_t, index=int, rounds=int,
    )
    cdef int _siphash(self, Py_ssize_t start, Py_ssize_t length) except -1

    cdef int _ask(self, Py_ssize_t row) except -1

    @cython.locals(low=uint64, high=uint64, at=Py_ssize_t)
    cdef Py_ssize_t _find(self, Py_ssize_t row) except -1

    cpdef begin_segment(self, int64 base_offset, int64 end_offset)

    cpdef pass_batch(self, int64 base_offset, int64 last_offset)

    @cython.locals(byte=uint64, value=uint64, shift=int)
    cdef uint64 _varint(self) except? 0

    @cython.locals(raw=uint64, length=int64, delta=int64, record_end=Py_ssize_t)
    cdef int _read_record(self, int64 last_offset_delta) except -1

    cdef int _begin(self, const unsigned char[::1] payload, Py_ssize_t start, Py_ssize_t end) except -1

    cpdef bint learn(
        self, const unsigned char[::1] payload, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count,
        int64 base_offset, int64 last_offset_delta, int64 first_offset,
    ) except *

    @cython.locals(left=Py_ssize_t, rows=Py_ssize_t, row=Py_ssize_t, at=Py_ssize_t)
    cdef bint _learn(self, Py_ssize_t count, int64 base_offset, int64 last_offset_delta, int64 first_offset) except *

    @cython.locals(
        size=Py_ssize_t, header_bytes=Py_ssize_t, overhead_bytes=Py_ssize_t, crc_start=Py_ssize_t,
        record_bytes_min=Py_ssize_t, batch_magic=int, special=int, start=Py_ssize_t, end=Py_ssize_t, magic=int,
        attributes=int, count=Py_ssize_t, base_offset=int64, length=int64, last_delta=int64,
    )
    cpdef Py_ssize_t learn_batches(self, object source, Py_ssize_t position, int64 first_offset) except -1

    cpdef Py_ssize_t sift(
        self, const unsigned char[::1] payload, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count,
        int64 base_offset, int64 last_offset_delta, int64 base_timestamp, int64 latest_offset, bint keep_tombstones,
        long long[::1] runs,
    ) except -1

    @cython.locals(
        kept=Py_ssize_t, run_count=Py_ssize_t, run_end=Py_ssize_t, tombstones=Py_ssize_t, max_timestamp=int64,
        delta_min=int64, delta_max=int64, left=Py_ssize_t, rows=Py_ssize_t, row=Py_ssize_t,
    )
    cdef Py_ssize_t _sift(
        self, Py_ssize_t count, int64 base_offset, int64 last_offset_delta, int64 base_timestamp,
        int64 latest_offset, bint keep_tombstones, long long[::1] runs,
    ) except -1

    @cython.locals(
        size=Py_ssize_t, runs_max=Py_ssize_t, header_bytes=Py_ssize_t, overhead_bytes=Py_ssize_t, crc_start=Py_ssize_t,
        record_bytes_min=Py_ssize_t, batch_magic=int, horizon_bit=int, append_time_bit=int, special=int,
        start=Py_ssize_t, end=Py_ssize_t, magic=int, attributes=int, has_horizon=int, keep_tombstones=bint,
        count=Py_ssize_t, kept=Py_ssize_t, base_offset=int64, length=int64, last_delta=int64, base_timestamp=int64,
        max_timestamp=int64,
    )
    cpdef tuple sift_batches(
        self, object source, Py_ssize_t position, int64 latest_offset, int64 now_ms, object kept_empty,
        list kept_batches, long long[::1] runs,
    )
