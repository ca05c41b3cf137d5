"""Compares our records of a profile with Debezium's, field by field, but for what differs from run to run.

Positions and ids of transactions are replaced by numbers in the order of their first appearance, so that it still is
compared which records share one. Times are replaced by their kind. Rows of the snapshot are sorted.
How many heartbeats come is a matter of time, so only the last one is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from tests.cdc.running import CdcRecord

MISSING: Final = "MISSING"
_CONTEXT: Final = "__debezium.context."
_HEARTBEAT: Final = "__debezium-heartbeat."
_TIMES: Final = {"ts_ms", "ts_us", "ts_ns", "__source_ts_ms", "now"}
_POSITIONS: Final = {"lsn", "__lsn"}
_PLACE: Final = {"id", "total_order", "data_collection_order"}
_BOUNDARY: Final = {"id", "status", "event_count", "data_collections"}
_KINDS: Final = {"version", "db", "__db"}
_NOT_SNAPSHOT: Final = (None, "false", "incremental")
_WINDOW: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}-(open|close)")
_WINDOW_TIMES: Final = re.compile(r'"([a-z]+)WindowTimestamp": ?"[^"]+"')


class EventLeaf(NamedTuple):
    """One value that differs: where, ours, and Debezium's."""

    topic: str
    path: str
    ours: Any
    theirs: Any


def leaves(ours: Sequence[CdcRecord], theirs: Sequence[CdcRecord]) -> list[EventLeaf]:
    """Return everything that differs between two runs of a profile."""
    mine, other = _ordered(ours), _ordered(theirs)
    found: list[EventLeaf] = []
    for mine_part, other_part in _aligned(mine, other):
        if len(mine_part) == len(other_part):
            for one, two in zip(mine_part, other_part, strict=True):
                found += _leaves(one["topic"], one, two, "")
        else:
            found += (EventLeaf(each["topic"], "record", _summary(each), MISSING) for each in mine_part)
            found += (EventLeaf(each["topic"], "record", MISSING, _summary(each)) for each in other_part)
    return found


def _aligned(mine: list[CdcRecord], other: list[CdcRecord]) -> Iterator[tuple[list[CdcRecord], list[CdcRecord]]]:
    """Yield parts that belong together: as many records on both sides, or those that only one side has."""
    ours, theirs = [_kind(each) for each in mine], [_kind(each) for each in other]
    if ours == theirs:
        yield mine, other
        return
    for tag, mine_from, mine_to, other_from, other_to in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if tag == "equal":
            yield mine[mine_from:mine_to], other[other_from:other_to]
        else:
            yield mine[mine_from:mine_to], []
            yield [], other[other_from:other_to]


def _ordered(records: Sequence[CdcRecord]) -> list[CdcRecord]:
    """Return normalised records: those of the snapshot by topic and key, then the stream as it came."""
    snapshot = sorted((each for each in records if _is_snapshot(each)), key=_sorted_by)
    beats = [each for each in records if each["topic"].startswith(_HEARTBEAT)]
    stream = [each for each in records if not _is_snapshot(each) and each not in beats] + beats[-1:]
    # Ranks begin anew with the stream: whether a snapshot has an id of its own depends on how it is taken.
    return [normal.record(each) for part in (snapshot, stream) for normal in (_Normal(),) for each in part]


def _payload(record: CdcRecord) -> Any:
    return None if record["value"] is None else record["value"]["payload"]


def _is_snapshot(record: CdcRecord) -> bool:
    payload = _payload(record)
    if not isinstance(payload, dict):
        return False
    return payload.get("__op") == "r" or payload.get("source", {}).get("snapshot") not in _NOT_SNAPSHOT


def _kind(record: CdcRecord) -> str:
    """Return what two records must share to be compared: the topic and the operation."""
    payload = _payload(record)
    operation = payload.get("op", payload.get("status")) if isinstance(payload, dict) else type(payload).__name__
    return f"{record['topic']} {operation}"


def _sorted_by(record: CdcRecord) -> str:
    payload = _payload(record)
    return json.dumps([record["topic"], payload.get("after", payload)])


def _summary(record: CdcRecord) -> str:
    payload = _payload(record)
    shown = {name: payload.get(name) for name in ("op", "before", "after")} if isinstance(payload, dict) else payload
    return json.dumps([record["key"] and record["key"]["payload"], shown], ensure_ascii=False)[:300]


class _Normal:
    """Makes records of different runs comparable."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[Any, int]] = {}

    def record(self, record: CdcRecord) -> CdcRecord:
        return {
            "topic": record["topic"],
            "key": self._key(record),
            "value": self._side(record["value"]),
            "headers": {
                name: self._side(value) if name != "__db" else "db"
                for name, value in record["headers"]
                if not name.startswith(_CONTEXT)
            },
        }

    def _key(self, record: CdcRecord) -> Any:
        key = self._side(record["key"])
        if record["topic"].endswith(".transaction") and key is not None:
            key["payload"]["id"] = self._rank("transaction", record["key"]["payload"]["id"])
        return key

    def _side(self, side: Any) -> Any:
        if side is None:
            return None
        return {"schema": _by_field(side["schema"]), "payload": self._value("", side["payload"])}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            fields = {each: self._value(each, value[each]) for each in value}
            if fields.keys() == {"id", "total_order", "data_collection_order"} or fields.get("status") in (
                "BEGIN",
                "END",
            ):
                fields["id"] = self._rank("transaction", value["id"])
                # Counts of tables have no order.
                fields["data_collections"] = sorted(fields.get("data_collections") or (), key=str)
            if name == "source":
                # The field's default, which a converter writes for null unless it is told not to.
                fields["snapshot"] = value.get("snapshot") or "false"
            if name == "source" and isinstance(value.get("sequence"), str):
                fields["sequence"] = [type(each).__name__ for each in json.loads(value["sequence"])]
            return fields
        if isinstance(value, list):
            return [self._value("", each) for each in value]
        if value is None:
            return None
        if name in _TIMES | _KINDS:
            return type(value).__name__
        if name in _POSITIONS or name in ("txId", "xmin"):
            return self._rank(name, value)
        return _text(value)

    def _rank(self, name: str, value: Any) -> int:
        known = self._ranks.setdefault(name.removeprefix("__"), {})
        return known.setdefault(value, len(known))


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _text(each) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    return _WINDOW_TIMES.sub(r'"\1WindowTimestamp": "time"', _WINDOW.sub(r"window-\1", value))


def _by_field(schema: Any) -> Any:
    """Return a schema with its fields by name, beside their order."""
    if not isinstance(schema, dict):
        return schema
    inner = {name: _by_field(each) for name, each in schema.items() if name not in ("field", "fields")}
    if "fields" in schema:
        inner["order"] = [each["field"] for each in schema["fields"]]
        inner["fields"] = {each["field"]: _by_field(each) for each in schema["fields"]}
    return inner


def _leaves(topic: str, ours: Any, theirs: Any, path: str) -> Iterator[EventLeaf]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**theirs, **ours}:
            inner = f"{path}.{key}" if path else key
            yield from _leaves(topic, ours.get(key, MISSING), theirs.get(key, MISSING), inner)
    elif not _same(ours, theirs):
        yield EventLeaf(topic, path.replace(".fields.", "."), ours, theirs)


def _same(ours: Any, theirs: Any) -> bool:
    # JSON has one kind of number, but a field has one type: 1 and 1.0 are not alike, nor are 1 and true.
    return type(ours) is type(theirs) and bool(ours == theirs)
