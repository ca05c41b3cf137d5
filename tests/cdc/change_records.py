"""A table, changes of its rows and the records that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.cdc.envelope import POSTGRES_SOURCE
from strandline.cdc.events import EventMaker
from strandline.cdc.model import CapturedColumn, CapturedTable, Operation, RowChange, TransactionPlace
from strandline.cdc.names import TopicNames
from strandline.cdc.settings import CdcConfig
from strandline.connect.records import SourceRecord
from strandline.connect.schema import INT32, OPTIONAL_STRING, STRING, ConnectType, Schema

NOW_NS: Final = 1_767_225_600_123_456_789
SOURCE: Final = {
    "version": "1",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1000,
    "snapshot": "false",
    "db": "db",
    "sequence": None,
    "schema": "public",
    "table": "customers",
    "txId": 7,
    "lsn": 8,
    "xmin": None,
    "origin": None,
    "origin_lsn": None,
}
ID: Final = CapturedColumn("id", INT32, int)
NAME: Final = CapturedColumn("name", STRING, bytes.decode, "?")
EMAIL: Final = CapturedColumn("email", OPTIONAL_STRING, bytes.decode, "?")
STATE: Final = CapturedColumn("state", Schema(ConnectType.STRING, True, default="new"), bytes.decode, "?")


def customers(**changes: Any) -> CapturedTable:
    given: dict[str, Any] = {"columns": (ID, NAME, EMAIL, STATE), "key": ("id",), **changes}
    return CapturedTable("db", "public", "customers", **given)


CUSTOMERS: Final = customers()
WHOLE: Final = customers(is_before_whole=True)


def maker(clock_ns: Callable[[], int] = lambda: NOW_NS, **settings: str) -> EventMaker:
    given = {name.replace("_", "."): each for name, each in settings.items()}
    config = CdcConfig({"topic.prefix": "shop", **given})
    return EventMaker(config, TopicNames(config), POSTGRES_SOURCE, clock_ns)


def change(
    op: Operation,
    before: Any = None,
    after: Any = None,
    table: CapturedTable = CUSTOMERS,
    transaction: TransactionPlace | None = None,
) -> RowChange:
    return RowChange(table, op, before, after, SOURCE, transaction)


def created(row: tuple[Any, ...] = (1, b"one", None, b"new"), **settings: str) -> SourceRecord:
    """Return the record of a new row."""
    (found,) = maker(lambda: NOW_NS, **settings).change(change("c", after=row))
    return found
