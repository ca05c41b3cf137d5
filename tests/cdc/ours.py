"""Our connector runs a profile; its records have the form of the recordings."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg.conninfo import conninfo_to_dict
from tests.cdc.profile import BASE, CdcProfile
from tests.cdc.running import CdcRecord, prepare, stream

from strandline.cdc.postgres.source import PostgresCdcSource
from strandline.connect.convert.json_converter import JsonConverter
from strandline.connect.failures import ConnectFailed
from strandline.connect.records import Batch, ConnectRecord
from strandline.connect.schema import Schema
from strandline.connect.transforms.chain import transform_chain

ENDS_WITHIN_S: Final = 30.0
_JSON: Final = {"schemas.enable": "true", "replace.null.with.default": "false"}


class _NothingStored:
    """A source that starts for the first time."""

    def get(self, partition: Mapping[str, Any]) -> None:
        return None

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return ()


class _Reading:
    """A source in a thread, its transforms and its converters."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._source = PostgresCdcSource(PostgresCdcSource.Config(settings))
        self._transform = transform_chain(settings)
        self._keys, self._values = (JsonConverter(JsonConverter.Config(_JSON), is_key=each) for each in (True, False))
        self.records: list[CdcRecord] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __call__(self) -> Sequence[CdcRecord]:
        if self._error is not None:
            raise self._error
        return self.records

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._source.stopping.set()
        self._thread.join(ENDS_WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._source.open()
            for batch in self._source.read(_NothingStored()):
                self._take(batch)
        except BaseException as error:
            self._error = error
        finally:
            self._source.close()

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            changed: ConnectRecord | None = self._transform(record) if self._transform else record
            if changed is not None:
                self.records.append(self._as_json(changed))

    def _as_json(self, record: ConnectRecord) -> CdcRecord:
        topic = record.topic
        return {
            "topic": topic,
            "key": _json(self._keys, topic, record.key_schema, record.key),
            "value": _json(self._values, topic, record.value_schema, record.value),
            "headers": [[name, _json(self._values, topic, schema, value)] for name, value, schema in record.headers],
        }


class Replay(NamedTuple):
    """What our connector made of a profile."""

    records: Sequence[CdcRecord]
    failure: str = ""
    """What the connector said when it stopped by itself."""


def replayed(profile: CdcProfile, dsn: str) -> Replay:
    """Run a profile in an empty database."""
    prepare(profile, dsn)
    with _running(profile, dsn) as reading:
        try:
            stream(profile, dsn, reading)
        except ConnectFailed as error:
            return Replay(reading.records, str(error))
        return Replay(list(reading()))


@contextlib.contextmanager
def _running(profile: CdcProfile, dsn: str) -> Iterator[_Reading]:
    place = conninfo_to_dict(dsn)
    connection = {
        "database.hostname": str(place["host"]),
        "database.user": str(place["user"]),
        "database.dbname": str(place["dbname"]),
        "slot.name": f"slot_{place['dbname']}",
        "publication.name": f"publication_{place['dbname']}",
        "slot.drop.on.stop": "true",
    }
    reading = _Reading({**BASE, **connection, **profile.settings})
    reading.start()
    try:
        yield reading
    finally:
        reading.stop()


def _json(converter: JsonConverter, topic: str, schema: Schema | None, value: Any) -> Any:
    data = converter.from_connect(topic, schema, value)
    return None if data is None else json.loads(data)
