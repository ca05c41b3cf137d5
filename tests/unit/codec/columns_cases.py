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
