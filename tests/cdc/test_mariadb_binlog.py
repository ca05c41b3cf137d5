"""The stream of a MariaDB without a server: hand-made binlog events, and a source that is killed between any two."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.connect.driving import WITHIN_S, Store, batches_of, commit

from strandline.cdc.mariadb import source, tables
from strandline.cdc.mariadb.binlog import GTID, QUERY, ROTATE, TABLE_MAP, XID, BinlogEvent
from strandline.cdc.mariadb.gtid import GtidPosition
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.source import MariadbCdcSource
from strandline.connect.records import Batch, SourceRecord

SERVER: Final = 1
WRITE_ROWS: Final = 23
PARTITION: Final = {"server": "log"}
TABLE_ID: Final = b"\x07\0\0\0\0\0"
TINYINT, INT, BIGINT = 1, 3, 8
COLUMNS: Final = {
    # name: type, whether it is unsigned, format of its values
    "id": (INT, False, "i"),
    "tiny": (TINYINT, True, "B"),
    "whole": (INT, False, "i"),
    "count": (INT, True, "I"),
    "large": (BIGINT, False, "q"),
}
Row = tuple[int, ...]
Transaction = list[BinlogEvent]


def event(kind: int, body: bytes = b"") -> BinlogEvent:
    return BinlogEvent(kind, 1_700_000_000, SERVER, 4, 4 + len(body), body)


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def table_map() -> BinlogEvent:
    """Return the description of the table `shop.t`, with names, signs and key."""
    signs = sum(0x80 >> at for at, (_, is_unsigned, _) in enumerate(COLUMNS.values()) if is_unsigned)
    names = b"".join(_text(each.encode()) for each in COLUMNS)
    types = bytes(each[0] for each in COLUMNS.values())
    head = TABLE_ID + b"\0\0" + _text(b"shop") + b"\0" + _text(b"t") + b"\0" + _text(types) + b"\0" + b"\0"
    fields = b"\x01" + _text(bytes([signs])) + b"\x04" + _text(names) + b"\x08" + _text(b"\0")
    return event(TABLE_MAP, head + fields)


def rows(*given: Row) -> BinlogEvent:
    """Return the event of inserted rows."""
    codes = "<" + "".join(each[2] for each in COLUMNS.values())
    written = b"".join(b"\0" + struct.pack(codes, *each) for each in given)
    return event(WRITE_ROWS, TABLE_ID + b"\0\0" + bytes([len(COLUMNS)]) + b"\xff" + written)


def query(text: str) -> BinlogEvent:
    return event(QUERY, struct.pack("<IIBHH", 9, 0, 4, 0, 0) + b"shop\0" + text.encode())


def transaction(sequence: int, *inside: BinlogEvent, end: BinlogEvent | None = None) -> Transaction:
    begin = event(GTID, struct.pack("<QI", sequence, 0) + b"\0" * 7)
    return [begin, *inside, end or event(XID, struct.pack("<Q", sequence))]


def whole(number: int) -> Row:
    return number, number % 256, -number, number, number


class Binlog:
    """What the server has written. It sends the transactions behind a position."""

    def __init__(self, *transactions: Transaction) -> None:
        self.transactions = transactions

    def __call__(self, config: MariadbCdcConfig, position: GtidPosition) -> Binlog:
        self._events = self._behind(str(position))
        return self

    def _behind(self, position: str) -> Iterator[BinlogEvent]:
        yield event(ROTATE, struct.pack("<Q", 4) + b"binlog.000001")
        for number, each in enumerate(self.transactions, 1):
            if number > int(position.rpartition("-")[2] or 0):
                yield from each

    def next(self, timeout_s: float) -> BinlogEvent | None:
        return next(self._events, None)

    def close(self) -> None:
        """Do nothing: there is no connection."""


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Store]:
    """Give a function that reads a binlog with a source that is killed at each batch, before and behind its commit."""
    monkeypatch.setattr(tables.MariadbTables, "_ask", lambda self, question: {})

    def read(binlog: Binlog, until: Callable[[Store], bool], **settings: str) -> Store:
        monkeypatch.setattr(source, "BinlogStream", binlog)
        store = Store()
        asyncio.run(_read_with_kills(store, until, settings))
        return store

    return read


async def _read_with_kills(store: Store, until: Callable[[Store], bool], settings: dict[str, str]) -> None:
    properties = {
        "topic.prefix": "log",
        "database.hostname": "none",
        "database.user": "u",
        "database.password": "p",
        "snapshot.mode": "never",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    store.commit(Batch((), PARTITION, {"gtids": ""}))
    async with asyncio.timeout(WITHIN_S):
        turn = 0
        while not until(store):
            turn += 1
            # Killed before the last batch that it gives is stored; the parts of a transaction are stored together.
            await _run(MariadbCdcSource(MariadbCdcConfig(properties)), store, turn % 7 + 1, until)


async def _run(source: MariadbCdcSource, store: Store, batches_max: int, until: Callable[[Store], bool]) -> None:
    """Read some batches as a worker does, and commit all but the last."""
    batches = batches_of(source, store)
    part: list[SourceRecord] = []
    count = 0
    try:
        async for batch in batches:
            count += 1
            if count == batches_max:
                return
            part += batch.records
            if not batch.is_open:
                batch.records, part = part, []
                await commit(source, store, batch)
                if until(store):
                    return
    finally:
        source.stopping.set()
        await batches.aclose()


def ids_of(store: Store) -> list[int]:
    return [each["after"]["id"] for each in store.values]


def has(last: int) -> Callable[[Store], bool]:
    """Return whether the row with this id is there; it is the last one that was written."""
    return lambda store: last in ids_of(store)


def test_a_source_that_is_killed_anywhere_has_each_row_once(capture: Callable[..., Store]) -> None:
    binlog = Binlog(
        transaction(1, table_map(), rows(whole(1))),
        # Longer than three batches.
        transaction(2, table_map(), *(rows(whole(number), whole(number + 1)) for number in range(2, 14, 2))),
        transaction(3, table_map(), rows(whole(14), whole(15))),
        transaction(4, table_map(), rows(whole(16))),
    )
    store = capture(binlog, has(16), max_batch_size="4")
    assert ids_of(store) == list(range(1, 17))


def test_numbers_have_the_signs_of_their_columns(capture: Callable[..., Store]) -> None:
    given = [(1, 255, -1, 2**32 - 1, -(2**63)), (2, 0, 2**31 - 1, 0, 2**63 - 1), (-3, 128, -(2**31), 2**31, -1)]
    store = capture(Binlog(transaction(1, table_map(), rows(*given))), has(-3))
    assert [tuple(each["after"].values()) for each in store.values] == given
    assert [each.key for each in store.records] == [{"id": 1}, {"id": 2}, {"id": -3}]


def test_a_transaction_that_was_rolled_back_is_passed_over(capture: Callable[..., Store]) -> None:
    binlog = Binlog(
        transaction(1, table_map(), rows(whole(1)), end=query("ROLLBACK")),
        transaction(2, table_map(), rows(whole(2))),
        transaction(3, table_map(), rows(whole(3), whole(4)), end=query("ROLLBACK")),
        transaction(4, table_map(), rows(whole(5)), end=query("COMMIT")),
    )
    store = capture(binlog, has(5))
    assert ids_of(store) == [2, 5]
    position = store.get(PARTITION)
    assert position is not None
    assert position["gtids"] == "0-1-4"
