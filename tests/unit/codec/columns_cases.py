"""Both twins of the decoder, and records to feed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st
from tests.unit.twins import as_parameters, load_plain

from strandline.codec.columns import Record, _scan, decode

SCAN_SOURCE = Path(decode.__file__).with_name("_scan.py")


PLAIN = load_plain(SCAN_SOURCE)
COMPILED = _scan if _scan.is_compiled() else None
TWINS = as_parameters(PLAIN, COMPILED)


@contextmanager
def using(twin: ModuleType) -> Iterator[None]:
    """Decode with this twin, whichever the installation has chosen."""
    chosen = decode._scan, decode._COMPILED
    decode._scan, decode._COMPILED = twin, twin.is_compiled()
    try:
        yield
    finally:
        decode._scan, decode._COMPILED = chosen


TIMESTAMPS = st.integers(min_value=-1, max_value=2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=70).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp_ms=TIMESTAMPS | st.integers(min_value=1_700_000_000_000, max_value=1_700_000_100_000),
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=20_000),
        headers=st.just(()) | HEADERS,
    ),
    max_size=80,
)


def numbered(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def order_feed(count: int, *, first_offset: int = 0) -> list[Record]:
    """Records that look like somebody's, with every kind of null and varints of one byte and more."""
    return [
        Record(
            offset=first_offset + index,
            timestamp_ms=1_700_000_000_000 + index * 37 - (index % 5) * 100,
            key=None if index % 7 == 3 else b"order-%d" % (index % 50),
            value=None if index % 11 == 5 else b'{"order": %d, "state": "paid"}' % index * (1 + index % 4),
            headers=(("trace", b"%d" % index), ("origin", None), ("café", b"")) if index % 3 == 0 else (),
        )
        for index in range(count)
    ]


# A sound record: length 7, attributes, timestamp delta, offset delta, key "k", value "v", no headers.
RECORD = bytes((16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0))
OVERLONG = b"\x80\x80\x80\x80\x80\x01"
BAD_PAYLOADS = {
    "negative record length": b"\x01" + RECORD[1:],
    "record length beyond the batch": b"\x20" + RECORD[1:],
    "record length too small": b"\x0e" + RECORD[1:],
    "record length of six bytes": OVERLONG + RECORD[1:],
    "record length of 33 bits": b"\x80\x80\x80\x80\x10" + RECORD[1:],
    "record of no bytes": bytes(9),
    "timestamp delta of eleven bytes": bytes((36, 0)) + b"\x80" * 10 + b"\x00" + RECORD[3:],
    "timestamp delta of 65 bits": bytes((34, 0)) + b"\xff" * 9 + b"\x02" + RECORD[3:],
    "negative offset delta": RECORD[:3] + b"\x01" + RECORD[4:],
    "offset delta beyond the last": RECORD[:3] + b"\x02" + RECORD[4:],
    "key length of minus two": RECORD[:4] + b"\x03" + RECORD[5:],
    "key length of six bytes": bytes((26, 0, 0, 0)) + b"\x82\x80\x80\x80\x80\x00" + RECORD[5:],
    "key leaves its record": RECORD[:4] + b"\x0a" + RECORD[5:],
    "value length of minus two": RECORD[:6] + b"\x03" + RECORD[7:],
    "value leaves its record": RECORD[:6] + b"\x06" + RECORD[7:],
    "negative header count": RECORD[:8] + b"\x01",
    "headers that are not there": RECORD[:8] + b"\x02",
    "two billion headers": b"\x18" + RECORD[1:8] + b"\xfe\xff\xff\xff\x0f",
    "null header key": bytes((20, 0, 0, 0, 2, ord("k"), 2, ord("v"), 2, 1, 0)),
    "header key leaves its record": bytes((20, 0, 0, 0, 2, ord("k"), 2, ord("v"), 2, 4, 0)),
    "header value leaves its record": bytes((20, 0, 0, 0, 2, ord("k"), 2, ord("v"), 2, 0, 2)),
    "header value of minus two": bytes((20, 0, 0, 0, 2, ord("k"), 2, ord("v"), 2, 0, 3)),
    "a byte after the records": RECORD + b"\x00",
    "a record after the records": RECORD * 2,
}
