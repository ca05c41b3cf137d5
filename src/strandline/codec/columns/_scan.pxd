# C types for _scan.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

@cython.locals(value=uint64, byte=uint64, shift=int, index=Py_ssize_t)
cdef (uint64, Py_ssize_t) varint_raw(const unsigned char[::1] payload, Py_ssize_t position, int bytes_max) except *

@cython.locals(length=int64)
cdef Py_ssize_t scan_headers(
    const unsigned char[::1] payload, Py_ssize_t position, Py_ssize_t count, Py_ssize_t record_end
) except -1

@cython.locals(
    record_end=Py_ssize_t, row=Py_ssize_t, length=int64, delta=uint64, timestamp_delta=int64, offset_delta=int64,
    offset_delta_min=int64, timestamp_delta_min=int64, timestamp_delta_max=int64, byte=uint64,
)
cpdef Py_ssize_t scan_records(
    const unsigned char[::1] payload,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t count,
    int64 base_offset,
    int64 last_offset_delta,
    int64 base_timestamp,
    int64[::1] wide,
    int[::1] narrow,
) except -1

@cython.locals(
    payload="const unsigned char[::1]", wide="long long[::1]", narrow="int[::1]",
    size=Py_ssize_t, header_bytes=Py_ssize_t, overhead_bytes=Py_ssize_t, crc_start=Py_ssize_t,
    record_bytes_min=Py_ssize_t, batch_magic=int, codec_mask=int, append_time_bit=int, offset_max=int64, start=Py_ssize_t, end=Py_ssize_t,
    rows=Py_ssize_t, row=Py_ssize_t, count=Py_ssize_t, magic=int, attributes=int, append_time=int,
    base_offset=int64, batch_length=int64, last_offset_delta=int64, base_timestamp=int64, max_timestamp=int64,
    key_start=Py_ssize_t, key_length=Py_ssize_t, value_start=Py_ssize_t, value_length=Py_ssize_t,
    header_count=Py_ssize_t,
)
cpdef Py_ssize_t read_plain_batches(
    bytes source, Py_ssize_t position, list records, bint check_crc, Py_ssize_t records_max
) except -1

@cython.locals(
    size=Py_ssize_t, overhead_bytes=Py_ssize_t, position=Py_ssize_t, following=Py_ssize_t, base_offset=int64,
    batch_length=int64, records=list,
)
cpdef object read_record(bytes source, int64 offset)

@cython.locals(
    payload="const unsigned char[::1]", batch_wide="long long[::1]", batch_narrow="int[::1]",
    size=Py_ssize_t, header_bytes=Py_ssize_t, overhead_bytes=Py_ssize_t, crc_start=Py_ssize_t,
    record_bytes_min=Py_ssize_t, batch_magic=int, codec_mask=int, append_time_bit=int, offset_max=int64, start=Py_ssize_t, end=Py_ssize_t,
    rows=Py_ssize_t, row=Py_ssize_t, rows_max=Py_ssize_t, rows_before=Py_ssize_t, batches_max=Py_ssize_t,
    batch_count=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t, magic=int, attributes=int, append_time=int,
    base_offset=int64, batch_length=int64, leader_epoch=int64, last_offset_delta=int64, base_timestamp=int64,
    max_timestamp=int64, producer_id=int64,
)
cpdef Py_ssize_t scan_batches(
    object source, Py_ssize_t position, int64[::1] batches, int64[::1] wide, int[::1] narrow, int64[::1] filled,
    bint check_crc,
) except -1

@cython.locals(found=Py_ssize_t, row=Py_ssize_t, position=Py_ssize_t, at=Py_ssize_t, field=int, length=int64)
cpdef Py_ssize_t locate_headers(
    const unsigned char[::1] payload, const int[::1] starts, const int[::1] counts, int[::1] positions
) except -1
