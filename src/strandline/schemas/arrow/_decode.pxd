# C types for _decode.py: Cython reads this file when it compiles the plain Python text beside it.

cimport cython

ctypedef long long int64
ctypedef unsigned long long uint64

cpdef bint is_compiled()

cdef int FAIL, NOTHING, VALID, DEFAULT, RECORD, UNION, ARRAY, MAP
cdef int BOOLEAN, INT, LONG, REAL_INT, FLOAT, DOUBLE
cdef int BYTES, TEXT, FIXED, DECIMAL, ENUM
cdef int PASS_VARINT, PASS_FIXED, PASS_BYTES, PASS_ARRAY, PASS_MAP
cdef int CUT_SHORT, TOO_LONG, BAD_LENGTH, BAD_NUMBER
cdef int BAD_BRANCH, BAD_SYMBOL, BAD_TEXT, BAD_DIGITS, TOO_MUCH
cdef int64 DEPTH_MAX, STEPS_PER_BYTE_MAX

@cython.final
cdef class PayloadReader:
    cdef const int64[::1] nodes
    cdef const int64[::1] numbers
    cdef const uint64[::1] bounds
    cdef const unsigned char[::1] payload
    cdef const int64[::1] bases
    cdef int64[::1] levels
    cdef int64[::1] wide
    cdef uint64[::1] words
    cdef double[::1] real
    cdef unsigned char[::1] flags
    cdef unsigned int[::1] float_bits
    cdef float[::1] float_value
    cdef int64 constants_at
    cdef int64 node_count
    cdef int64 position
    cdef int64 end
    cdef int64 steps
    cdef int64 depth
    cdef bint fills
    cdef bint checks_text

    @cython.locals(
        first="const long long[::1]", last="const long long[::1]", codes="int[::1]", levels_before="long long[::1]",
        row=Py_ssize_t, level=Py_ssize_t,
    )
    cpdef object read_rows(self, object starts, object ends, object errors, object before, int64 root, bint fills, bint checks_text)

    @cython.locals(at=int64, operation=int64)
    cdef int read(self, int64 node) except -1

    @cython.locals(branch=int64, first=int64, index=int64, position=int64, end=int64, steps=int64)
    cdef int read_inside(self, int64 at, int64 operation) except -1

    @cython.locals(level=int64, item=int64, total=int64, count=int64)
    cdef int read_items(self, int64 at, int64 operation) except -1

    @cython.locals(length=int64)
    cdef int read_key(self, int64 column, int64 level) except -1

    @cython.locals(number=int64, rest=int64, factor=int64, most=int64, limit=int64)
    cdef int read_number(self, int64 at, int64 operation) except -1

    @cython.locals(size=int64, position=int64, bits=uint64, index=int64)
    cdef int read_float(self, int64 at, int64 operation) except -1

    @cython.locals(length=int64)
    cdef int read_bytes(self, int64 at, int64 operation) except -1

    @cython.locals(symbol=int64, number=int64)
    cdef int read_symbol(self, int64 at) except -1

    @cython.locals(
        position=int64, ones=uint64, mask=uint64, low=uint64, high=uint64, index=int64, bound=int64, is_negative=bint,
        fits=bint,
    )
    cdef int read_decimal(self, int64 at, int64 length) except -1

    @cython.locals(length=int64, item=int64, count=int64)
    cdef int skip(self, int64 at, int64 operation) except -1

    @cython.locals(place=Py_ssize_t)
    cdef Py_ssize_t slot(self, int64 at) except -1

    @cython.locals(position=int64, byte=int64)
    cdef Py_ssize_t boolean(self) except -1

    cdef Py_ssize_t length(self) except -1

    @cython.locals(count=int64)
    cdef Py_ssize_t block(self) except -1

    @cython.locals(position=int64, byte=uint64, raw=uint64, shift=int)
    cdef Py_ssize_t varint(self) except? -1

    @cython.locals(byte=uint64, second=uint64, more=int64)
    cdef int check_text(self, int64 position, int64 end) except -1
