"""Records for tests that call a sink by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.connect.config import Config
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import RecordList, Sink

TOPIC = "orders"
PLACE = TopicPosition(TOPIC, 0)


def record(offset: int, value: Any = None, key: Any = None, partition: int = 0, **more: Any) -> SinkRecord:
    """Return a record of the topic; without a value it is a tombstone."""
    topic = more.pop("topic", TOPIC)
    return SinkRecord(
        topic,
        value,
        key,
        partition,
        offset=offset,
        original_topic=more.pop("original_topic", topic),
        original_partition=partition,
        **more,
    )


def batch(*records: SinkRecord) -> RecordList:
    return RecordList(records)


def opened(kind: type[Sink], properties: Mapping[str, str]) -> Any:
    """Return a sink that is ready, after its settings were checked as a worker checks them."""
    settings: type[Config] = kind.Config
    assert settings.errors_of(properties) == {}
    sink = kind(settings(properties))
    sink.open()
    return sink
