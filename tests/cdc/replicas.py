"""A table, its topic and its replica: the connectors of docs/cdc.md, run by one worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.cdc.postgres_capture import properties_of
from tests.connect.running import RunningWorker

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

BROKER = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}
SOURCE, SINK = "capture", "replica"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
CONVERTERS = {
    "key.converter": _JSON,
    "value.converter": _JSON,
    "value.converter.replace.null.with.default": "false",
}


def source_config(source: str, **settings: str) -> dict[str, str]:
    """Return the source of a database's tables; `_` in a setting's name stands for a dot."""
    return {
        "connector.class": "PostgresCdcSource",
        **CONVERTERS,
        **properties_of(source, **settings),
        "publication.autocreate.mode": "filtered",
        # The position of an idle database moves with each.
        "heartbeat.interval.ms": "300",
    }


def sink_config(replica: str) -> dict[str, str]:
    """Return the sink that writes each table of the schema `public` under its own name."""
    return {
        "connector.class": "PostgresSink",
        **CONVERTERS,
        "topics.regex": r"db\.public\..*",
        "connection.url": replica,
        "transforms": "flat,table",
        "transforms.flat.type": "ExtractNewRecordState",
        "transforms.flat.delete.tombstone.handling.mode": "delete-to-tombstone",
        "transforms.table.type": "RegexRouter",
        "transforms.table.regex": r"db\.public\.(.*)",
        "transforms.table.replacement": "$1",
        "consumer.override.metadata.max.age.ms": "500",
    }


def write_file(path: Path, source: str, replica: str, **settings: str) -> Path:
    """Write both connectors to a file of `strandline connect`."""
    connectors = {SOURCE: source_config(source, **settings), SINK: sink_config(replica)}
    path.write_text(yaml.safe_dump({"connectors": connectors}))
    return path


@contextmanager
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=BROKER) as log:
        yield log


@contextmanager
def replicating(source: str, replica: str, log: EmbeddedBroker | None = None) -> Iterator[RunningWorker]:
    """Run source and sink; without a broker on one of its own. Connectors that the broker knows go on."""
    if log is None:
        with broker() as log, replicating(source, replica, log) as worker:
            yield worker
        return
    with RunningWorker(log.bootstrap) as worker:
        worker.lead()
        for name, config in ((SOURCE, source_config(source)), (SINK, sink_config(replica))):
            if worker.status(name) is None:
                worker.create(name, config["connector.class"], config)
        yield worker
