"""Makes records for demonstrations and tests: orders, payments, clicks and others, or fields of your own.

A record is a function of the seed and its number. So each is there once after a crash, and two runs with one seed have
the same records. Only times differ, because they begin when the connector is first started.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from strandline.connect.config import Config as ConnectConfig
from strandline.connect.config import Long, option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import AnyBatch, Batch, SourceOffsets, SourcePosition, SourceRecord
from strandline.connect.schema import struct
from strandline.connect.source import Source
from strandline.connect.sources.generated_fields import Moment, fields_of, mixed

TASK: Final = "task.number"
"""The setting of a task that says which sequence it makes."""
BATCH_MAX: Final = 500
BATCHES_PER_S: Final = 10
_TICKERS: Final = ["AAA", "BNK", "CLD", "DRG", "ENR", "FAB", "GLD", "HUB"]

QUICKSTARTS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "orders": (
        "order_id",
        {
            "order_id": {"kind": "sequence"},
            "customer_id": {"kind": "int", "low": 1, "high": 1000},
            "ordered_at": {"kind": "timestamp"},
            "product": {"kind": "pattern", "of": "SKU-####"},
            "units": {"kind": "int", "low": 1, "high": 10},
            "price": {"kind": "float", "low": 1, "high": 500},
            "status": ["new", "paid", "sent", "cancelled"],
            "address": {
                "kind": "struct",
                "fields": {
                    "city": ["Accra", "Berlin", "Lima", "Lyon", "Osaka", "Pune"],
                    "zip": {"kind": "pattern", "of": "#####"},
                },
            },
        },
    ),
    "payments": (
        "payment_id",
        {
            "payment_id": {"kind": "uuid"},
            "order_id": {"kind": "int", "low": 1, "high": 100_000},
            "paid_at": {"kind": "timestamp"},
            "amount": {"kind": "float", "low": 1, "high": 1000},
            "currency": ["EUR", "GBP", "JPY", "USD"],
            "method": ["card", "transfer", "wallet"],
            "is_refund": {"kind": "boolean", "share": 0.03},
        },
    ),
    "users": (
        "user_id",
        {
            "user_id": {"kind": "int", "low": 1, "high": 1000},
            "name": {"kind": "name"},
            "email": {"kind": "email"},
            "registered_at": {"kind": "timestamp"},
            "plan": ["free", "plus", "team"],
            "is_active": {"kind": "boolean", "share": 0.9},
        },
    ),
    "clickstream": (
        "session_id",
        {
            "session_id": {"kind": "int", "low": 1, "high": 500},
            "user_id": {"kind": "int", "low": 1, "high": 1000},
            "clicked_at": {"kind": "timestamp", "late_ms": 2000},
            "page": ["/", "/basket", "/checkout", "/help", "/product", "/search"],
            "referrer": ["direct", "mail", "search", "social"],
            "duration_ms": {"kind": "int", "low": 20, "high": 3000},
        },
    ),
    "sensors": (
        "sensor_id",
        {
            "sensor_id": {"kind": "pattern", "of": "sensor-#"},
            "measured_at": {"kind": "timestamp"},
            "temperature": {"kind": "walk", "low": 15, "high": 30, "by": "sensor_id"},
            "humidity": {"kind": "walk", "low": 20, "high": 80, "digits": 1, "by": "sensor_id"},
            "battery": {"kind": "int", "low": 10, "high": 100},
        },
    ),
    "stock_trades": (
        "symbol",
        {
            "symbol": _TICKERS,
            "side": ["buy", "sell"],
            "quantity": {"kind": "int", "low": 1, "high": 5000},
            "price": {"kind": "walk", "low": 5, "high": 500, "by": "symbol"},
            "account": {"kind": "pattern", "of": "??-####"},
            "traded_at": {"kind": "timestamp"},
        },
    ),
}
"""The key and the fields of each template."""


def _json(value: str) -> str | None:
    try:
        fields_of(json.loads(value))
    except ValueError as error:
        return f"it is not JSON: {error}"
    except InvalidConnectorConfig as error:
        return str(error)
    return None


class GeneratorSource(Source):
    """Makes records of a template, or of a schema of your own."""

    class Config(ConnectConfig):
        """Settings of the generator."""

        topic: str = option(
            "Where records are written to.",
            importance="HIGH",
            check=lambda value: None if value else "String must be non-empty",
        )
        quickstart: str | None = option(
            "A template; without it `schema` is needed.", default=None, choices=tuple(QUICKSTARTS)
        )
        schema: str | None = option("Fields in JSON, by name, each with a `kind`.", default=None)
        key_field: str | None = option("The field that is the key; a template has its own.", default=None)
        rate: float = option("Records per second of each task; 0 is as fast as possible.", default=10.0, low=0)
        iterations: Long = option("Records of each task, -1 for no end.", default=-1, low=-1)
        seed: Long = option("Another seed gives other records.", default=0)

        def check_all(self) -> Sequence[tuple[str, str]]:
            if (self.quickstart is None) == (self.schema is None):
                return [("quickstart", "Set either quickstart or schema.")]
            if self.schema is not None and (wrong := _json(self.schema)) is not None:
                return [("schema", wrong)]
            if self.key_field is not None and self.key_field not in self.fields:
                return [("key.field", f"There is no field {self.key_field}.")]
            return ()

        @property
        def fields(self) -> Mapping[str, Any]:
            """The fields of the template, or those that were given."""
            if self.quickstart is not None:
                return QUICKSTARTS[self.quickstart][1]
            found: Mapping[str, Any] = json.loads(self.schema or "{}")
            return found

        @property
        def key(self) -> str | None:
            if self.key_field is None and self.quickstart is not None:
                return QUICKSTARTS[self.quickstart][0]
            return self.key_field

    config: Config

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return as many tasks as there may be, each with a sequence of its own."""
        return [{TASK: str(index)} for index in range(tasks_max)]

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[AnyBatch]:
        """Yield records at the rate, up to the number of them."""
        task = int(self.config.properties.get(TASK, "0"))
        partition = {"generator": task}
        stored = offsets.get(partition) or {"position": 0, "time_ms": time.time_ns() // 1_000_000}
        index, time_ms = int(stored["position"]), float(stored["time_ms"])
        rate, end = self.config.rate, self.config.iterations
        step_ms = 1000 / rate if rate else 1.0
        size = max(1, min(BATCH_MAX, int(rate / BATCHES_PER_S))) if rate else BATCH_MAX
        records = GeneratedRecords(self.config, mixed(self.config.seed & (2**64 - 1), task))
        begun, made = time.monotonic(), 0
        while end < 0 or index < end:
            count = size if end < 0 else min(size, end - index)
            batch = [records.make(index + each, int(time_ms + each * step_ms)) for each in range(count)]
            index, time_ms, made = index + count, time_ms + count * step_ms, made + count
            yield Batch(batch, partition, {"position": index, "time_ms": time_ms})
            await asyncio.sleep(max(0.0, begun + made / rate - time.monotonic()) if rate else 0)

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        """Take `{"generator": task}` with `{"position", "time_ms"}`."""
        for partition, offset in offsets:
            if set(partition) != {"generator"}:
                raise InvalidConnectorConfig('the partition of a generator is {"generator": <number of the task>}')
            if offset is None:
                continue
            for name in ("position", "time_ms"):
                value = offset.get(name)
                if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                    raise InvalidConnectorConfig(f"the offset of {dict(partition)} needs {name}, which is not negative")


class GeneratedRecords:
    """Makes the records of one task."""

    def __init__(self, config: Any, seed: int) -> None:
        self._fields = fields_of(config.fields)
        self._schema = struct({each.name: each.schema for each in self._fields}, name=config.quickstart)
        self._key = config.key
        key = None if self._key is None else self._schema.field(self._key)
        self._key_schema = None if key is None else key.schema
        self._seed = seed
        self._topic = config.topic

    def make(self, index: int, time_ms: int) -> SourceRecord:
        """Return the record of a number."""
        value: dict[str, Any] = {}
        moment = Moment(index, self._seed, time_ms, value)
        for each in self._fields:
            value[each.name] = each.value(moment)
        key = None if self._key is None else value[self._key]
        return SourceRecord(
            self._topic, value, key, timestamp_ms=time_ms, key_schema=self._key_schema, value_schema=self._schema
        )
