"""Positions of sources, on the offsets topic of Kafka Connect: `["connector",{partition}]` to `{offset}`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from strandline.connect.failures import ConnectFailed
from strandline.connect.herder.config_state import StateRecord, to_json
from strandline.connect.records import SourcePosition


class _Stored(NamedTuple):
    key: bytes
    """As it is in the topic: compaction goes by these bytes."""
    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


class OffsetState:
    """The fold of the offsets topic. The reader's thread writes it, tasks read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: dict[str, dict[str, _Stored]] = {}

    def apply(self, records: Sequence[StateRecord]) -> None:
        with self._lock:
            for record in records:
                self._apply(record)

    def of(self, connector: str) -> ConnectorOffsets:
        """Return the positions of a connector as they are now."""
        with self._lock:
            return ConnectorOffsets(dict(self._stored.get(connector, {})))

    def records(self, connector: str, positions: Sequence[SourcePosition]) -> list[StateRecord]:
        """Return what stores the last position of each partition; one without an offset is deleted."""
        newest = {_canonical(partition): (partition, offset) for partition, offset in positions}
        made = []
        with self._lock:
            known = self._stored.get(connector, {})
            for name, (partition, offset) in newest.items():
                found = known.get(name)
                key = found.key if found is not None else to_json([connector, partition])
                made.append(StateRecord(key, None if offset is None else to_json(offset)))
        return made

    def _apply(self, record: StateRecord) -> None:
        try:
            connector, partition = json.loads(record.key)
            offset = None if record.value is None else json.loads(record.value)
        except (ValueError, TypeError):
            return
        if not isinstance(partition, dict):
            return
        name = _canonical(partition)
        of_connector = self._stored.setdefault(connector, {})
        if isinstance(offset, dict):
            of_connector[name] = _Stored(record.key, partition, offset)
        else:
            of_connector.pop(name, None)


class ConnectorOffsets:
    """The positions of a connector's partitions at one moment."""

    def __init__(self, stored: Mapping[str, _Stored]) -> None:
        self._stored = stored

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        found = self._stored.get(_canonical(partition))
        return None if found is None else found.offset

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return [(each.partition, each.offset) for each in self._stored.values()]


def _canonical(partition: Mapping[str, Any]) -> str:
    try:
        return json.dumps(partition, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ConnectFailed(f"the source partition {partition!r} is no JSON: {error}") from None
