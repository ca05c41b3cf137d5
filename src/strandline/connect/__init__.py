"""Connectors in Python: sources and sinks with Kafka Connect's settings, REST API and topics.

    from strandline import connect

    class Printer(connect.Sink):
        async def write(self, batch):
            for record in batch:
                print(record.value)

docs/connect.md shows how to write and run one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.connect.config import Config, Password, option
    from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
    from strandline.connect.records import (
        Batch,
        ConnectRecord,
        Header,
        SinkRecord,
        SourceOffsets,
        SourceRecord,
        TopicPosition,
        ValueBatch,
    )
    from strandline.connect.schema import Schema
    from strandline.connect.sink import Sink, SinkBatch
    from strandline.connect.source import Source

_LAZY = {
    "Batch": "records",
    "Config": "config",
    "ConnectFailed": "failures",
    "Header": "records",
    "InvalidConnectorConfig": "failures",
    "Password": "config",
    "ConnectRecord": "records",
    "RecordFailed": "failures",
    "RetriableFailure": "failures",
    "Schema": "schema",
    "Sink": "sink",
    "SinkBatch": "sink",
    "SinkRecord": "records",
    "Source": "source",
    "SourceOffsets": "records",
    "SourceRecord": "records",
    "TopicPosition": "records",
    "ValueBatch": "records",
    "option": "config",
}

__all__ = [
    "Batch",
    "Config",
    "ConnectFailed",
    "Header",
    "InvalidConnectorConfig",
    "Password",
    "ConnectRecord",
    "RecordFailed",
    "RetriableFailure",
    "Schema",
    "Sink",
    "SinkBatch",
    "SinkRecord",
    "Source",
    "SourceOffsets",
    "SourceRecord",
    "TopicPosition",
    "ValueBatch",
    "option",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline.connect' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"strandline.connect.{_LAZY[name]}"), name)
