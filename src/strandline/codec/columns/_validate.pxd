# C types for _validate.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

cdef Py_ssize_t FAULTS_NAMED, DEEPEST
cdef int64 STEPS, STEPS_PER_BYTE
cdef uint64 HIGH_BITS
cdef int64 ACCEPTED, REFUSED, FIRST, NEW
cdef int INT, LONG, ENUM, UNION, BYTES, STRING, BLOCKS, NEXT, BOOLEAN, SKIP, JUMP, CALL, RETURN, END
cdef int KEYLESS, NO_ID, ID_REFUSED, TO_JUDGE, TOO_SHORT, BAD_NUMBER, BAD_INT, BAD_SYMBOL, BAD_BRANCH, BAD_LENGTH
cdef int BAD_TEXT, BAD_BOOLEAN, BAD_BLOCK, TOO_DEEP, TOO_LONG, BYTES_LEFT

@cython.final
cdef class FieldRules:
    cdef public dict modes
    cdef const int[::1] program
    cdef int64 last_id
    cdef int64 last_mode

    cpdef set_program(self, program)

@cython.final
cdef class RecordWalk:
    cdef readonly FieldRules key
    cdef readonly FieldRules value
    cdef bint needs_key
    cdef bint decodes
    cdef int64 steps_max
    cdef int64 steps
    cdef readonly Py_ssize_t row
    cdef readonly int64 new_id
    cdef readonly bint is_new_key
    cdef const unsigned char[::1] payload
    cdef bytes source
    cdef const uint64[::1] words
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int64 timestamp_delta_min
    cdef int64 timestamp_delta_max
    cdef Py_ssize_t fault_at
    cdef int64 number
    cdef Py_ssize_t depth
    cdef int64[::1] stack

    @cython.locals(start=Py_ssize_t, may_pass=bint, rules=FieldRules, each=FieldRules)
    cpdef Py_ssize_t check(
        self, payload, Py_ssize_t position, Py_ssize_t end, Py_ssize_t row, Py_ssize_t row_end, int64 base_timestamp,
        list faults,
    ) except -1

    @cython.locals(
        needs_key=bint, end=Py_ssize_t, start=Py_ssize_t, at=Py_ssize_t, byte=int64, length=int64, size=int64, found=int64,
        record_end=Py_ssize_t, value_id=int64, place=int64,
    )
    cdef Py_ssize_t _pass_alike(
        self, const unsigned char[::1] payload, FieldRules rules, Py_ssize_t position, Py_ssize_t row, Py_ssize_t row_end
    ) except -1

    @cython.locals(value=uint64, byte=uint64, shift=int, index=int)
    cdef uint64 _varint(self, int bytes_max) except? 0xFFFFFFFFFFFFFFFF

    @cython.locals(raw=uint64, length=int64, delta=int64, record_end=Py_ssize_t)
    cdef int _check_record(self, Py_ssize_t row, list faults) except -1

    @cython.locals(length=int64)
    cdef int _skip_headers(self, Py_ssize_t count, Py_ssize_t record_end) except -1

    @cython.locals(at=Py_ssize_t, schema_id=int64, mode=int64, why=int)
    cdef int _check_field(self, FieldRules rules, Py_ssize_t row, bint is_key, Py_ssize_t end, list faults) except -1

    @cython.locals(steps=int64, steps_max=int64, code=int)
    cdef int _decode(self, FieldRules rules, Py_ssize_t place, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(value=uint64, byte=uint64, shift=int)
    cdef int _number(self, Py_ssize_t end) except -1

    @cython.locals(why=int, number=int64)
    cdef Py_ssize_t _run_numbered(self, FieldRules rules, int code, Py_ssize_t place, Py_ssize_t end) except? -1

    @cython.locals(at=Py_ssize_t, text=bytes)
    cdef int _is_text(self, Py_ssize_t end) except -1

    @cython.locals(block_end=int64)
    cdef Py_ssize_t _begin_block(self, FieldRules rules, Py_ssize_t place, int64 count, Py_ssize_t end) except? -1

    cdef Py_ssize_t _run_other(self, FieldRules rules, int code, Py_ssize_t place, Py_ssize_t end) except? -1

    @cython.locals(begin=Py_ssize_t, top=Py_ssize_t)
    cdef Py_ssize_t _end_item(self, FieldRules rules, Py_ssize_t place) except? -1
