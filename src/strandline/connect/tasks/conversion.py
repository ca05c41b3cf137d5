"""Between bytes and values: the converters and transforms of one connector.

A whole batch is converted at once where nothing looks at single records: no transforms, and a converter that has a
bulk form. If a record of such a batch fails, the batch is converted again one by one, to find it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from strandline.connect.convert.choosing import converter_of
from strandline.connect.convert.interface import Converter
from strandline.connect.failures import RetriableFailure
from strandline.connect.records import ConnectRecord, Header, SinkRecord, SourceRecord, TopicPosition
from strandline.connect.tasks.tolerance import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    TRANSFORMATION,
    VALUE_CONVERTER,
    BadRecord,
    RawRecord,
)
from strandline.connect.transforms.chain import transform_chain

log = logging.getLogger("strandline.connect")

_DEFAULTS: Final = {"header.converter": "SimpleHeaderConverter"}

OutFields = dict[str, Any]
"""A record for the log, as the arguments of librdkafka's `produce` without the topic."""
OnBad = Callable[[BadRecord, RawRecord | None], None]
"""Takes a record that failed; returns if it is left out."""


class OutMessage(NamedTuple):
    """A record for the log."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: list[tuple[str, bytes | None]]


class Conversion:
    """The converters and transforms of a connector. Properties hold the worker's defaults where it has none."""

    def __init__(self, properties: Mapping[str, str], allowed_modules: Sequence[str] = ()) -> None:
        self.key = _converter(properties, "key.converter", is_key=True)
        self.value = _converter(properties, "value.converter", is_key=False)
        self.header = _converter(properties, "header.converter", is_key=False)
        self.transform = transform_chain(properties, allowed_modules)

    def close(self) -> None:
        for each in (self.key, self.value, self.header):
            each.close()

    # From a source

    def messages(self, records: Sequence[SourceRecord], topic: str, on_bad: OnBad) -> Iterator[OutMessage]:
        """Yield what goes into the log, in order. A record without a topic goes to `topic`."""
        for record in records:
            if not record.topic:
                record.topic = topic
            try:
                message = self._message(record)
            except BadRecord as bad:
                on_bad(bad, None)
                continue
            if message is not None:
                yield message

    def payloads(self, values: Sequence[Any], topic: str) -> list[bytes | None] | None:
        """Return the bytes of values without keys; None if each record has to be looked at."""
        if self.transform is not None or not self.value.has_bulk:
            return None
        return self.value.from_values(topic, values)

    def batches(self, records: Sequence[SourceRecord], topic: str) -> dict[str, list[OutFields]] | None:
        """Return what goes into the log by topic; None if each record has to be looked at.

        That is so with transforms, and if a record cannot be converted.
        """
        if self.transform is not None:
            return None
        key_of, value_of = self.key.from_connect, self.value.from_connect
        found: dict[str, list[OutFields]] = {}
        try:
            for record in records:
                into = record.topic or topic
                made: OutFields = {
                    "key": key_of(into, record.key_schema, record.key),
                    "value": value_of(into, record.value_schema, record.value),
                }
                if record.partition is not None:
                    made["partition"] = record.partition
                if record.timestamp_ms is not None:
                    made["timestamp"] = record.timestamp_ms
                if record.headers:
                    made["headers"] = [
                        (each.name, self.header.from_connect(into, each.schema, each.value)) for each in record.headers
                    ]
                if into in found:
                    found[into].append(made)
                else:
                    found[into] = [made]
        except RetriableFailure:
            raise
        except Exception as error:  # the record that has it is found one by one
            log.debug("a batch is converted one by one: %s", error)
            return None
        return found

    def _message(self, record: SourceRecord) -> OutMessage | None:
        place = f"a record for {record.topic}"
        found: ConnectRecord | None = record
        if self.transform is not None:
            found = _stage(TRANSFORMATION, place, self.transform, record)
        if found is None:
            return None
        topic = found.topic
        headers = [
            (each.name, _stage(HEADER_CONVERTER, place, self.header.from_connect, topic, each.schema, each.value))
            for each in found.headers
        ]
        return OutMessage(
            topic,
            _stage(KEY_CONVERTER, place, self.key.from_connect, topic, found.key_schema, found.key),
            _stage(VALUE_CONVERTER, place, self.value.from_connect, topic, found.value_schema, found.value),
            found.partition,
            found.timestamp_ms,
            headers,
        )

    # To a sink

    def batch(self, messages: Sequence[Any], on_bad: OnBad, partitions_max: int | None = None) -> ConvertedBatch:
        """Return the records of librdkafka's messages, which are of so many partitions at most."""
        ends = ends_of(messages, partitions_max)
        if self.transform is None and self.value.has_bulk and self.key.has_bulk:
            topic = messages[0].topic()
            try:
                values = self.value.to_values(topic, [each.value() for each in messages])
                keys = self.key.to_values(topic, [each.key() for each in messages])
            except RetriableFailure:
                raise
            except Exception as error:  # the record that has it is found one by one
                log.debug("a batch of %s is converted one by one: %s", topic, error)
            else:
                return ConvertedBatch(self, messages, ends, values, keys)
        records = []
        for message in messages:
            try:
                record = self._record(message)
            except BadRecord as bad:
                on_bad(bad, raw_of(message))
                continue
            if record is not None:
                records.append(record)
        return ConvertedBatch.of_records(self, messages, ends, records)

    def _record(self, message: Any) -> SinkRecord | None:
        topic = message.topic()
        place = f"{topic}-{message.partition()} at offset {message.offset()}"
        key_schema, key = _stage(KEY_CONVERTER, place, self.key.to_connect, topic, message.key())
        value_schema, value = _stage(VALUE_CONVERTER, place, self.value.to_connect, topic, message.value())
        record = SinkRecord(
            topic,
            value,
            key,
            message.partition(),
            message.timestamp()[1],
            _stage(HEADER_CONVERTER, place, self.headers_of, message),
            key_schema,
            value_schema,
            message.offset(),
            topic,
            message.partition(),
        )
        if self.transform is None:
            return record
        found = _stage(TRANSFORMATION, place, self.transform, record)
        return found if isinstance(found, SinkRecord) else None

    def headers_of(self, message: Any) -> Sequence[Header]:
        found = message.headers()
        if not found:
            return ()
        topic = message.topic()
        converted = [(name, *self.header.to_connect(topic, data)) for name, data in found]
        return [Header(name, value, schema) for name, schema, value in converted]


class ConvertedBatch(Sequence[SinkRecord]):
    """Records for a sink. Objects of single records are made when they are asked for."""

    def __init__(
        self,
        conversion: Conversion,
        messages: Sequence[Any],
        ends: Mapping[TopicPosition, int],
        values: Sequence[Any],
        keys: Sequence[Any],
    ) -> None:
        self._conversion = conversion
        self._messages = messages
        self.ends = ends
        """The offset behind the last record of each partition, also of records that were left out."""
        self._values = values
        self._keys = keys
        self._records: Sequence[SinkRecord] | None = None

    @classmethod
    def of_records(
        cls,
        conversion: Conversion,
        messages: Sequence[Any],
        ends: Mapping[TopicPosition, int],
        records: Sequence[SinkRecord],
    ) -> ConvertedBatch:
        made = cls(conversion, messages, ends, [each.value for each in records], [each.key for each in records])
        made._records = records
        return made

    def without(self, gone: Collection[TopicPosition]) -> ConvertedBatch:
        """Return the batch without the records of these partitions."""
        records = [each for each in self.records if (each.original_topic, each.original_partition) not in gone]
        messages = [each for each in self._messages if (each.topic(), each.partition()) not in gone]
        ends = {place: end for place, end in self.ends.items() if place not in gone}
        return ConvertedBatch.of_records(self._conversion, messages, ends, records)

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, int, int], Any]:
        return {(each.topic(), each.partition(), each.offset()): each for each in self._messages}

    def raw_of(self, record: SinkRecord) -> RawRecord:
        """Return a record as it is in its topic."""
        return raw_of(self._by_place[record.original_topic, record.original_partition, record.offset])

    def only(self, record: SinkRecord) -> ConvertedBatch:
        """Return a batch of this record alone."""
        position = TopicPosition(record.original_topic, record.original_partition)
        message = self._by_place[*position, record.offset]
        return ConvertedBatch.of_records(self._conversion, [message], {position: record.offset + 1}, [record])

    def keeping(self, records: Sequence[SinkRecord]) -> ConvertedBatch:
        """Return the batch with these records only; it ends at the same offsets."""
        return ConvertedBatch.of_records(self._conversion, self._messages, self.ends, records)

    @property
    def values(self) -> Sequence[Any]:
        return self._values

    @property
    def keys(self) -> Sequence[Any]:
        return self._keys

    @property
    def size_bytes(self) -> int:
        return sum(len(each) for each in self._messages)

    @property
    def records(self) -> Sequence[SinkRecord]:
        if self._records is None:
            value_schema, key_schema = self._conversion.value.bulk_schema, self._conversion.key.bulk_schema
            self._records = [
                SinkRecord(
                    each.topic(),
                    value,
                    key,
                    each.partition(),
                    each.timestamp()[1],
                    self._conversion.headers_of(each),
                    key_schema,
                    value_schema,
                    each.offset(),
                    each.topic(),
                    each.partition(),
                )
                for each, value, key in zip(self._messages, self._values, self._keys, strict=True)
            ]
        return self._records

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[SinkRecord]:
        return iter(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def ends_of(messages: Sequence[Any], partitions_max: int | None) -> dict[TopicPosition, int]:
    """Return the offset behind the last message of each partition."""
    found: dict[TopicPosition, int] = {}
    for each in reversed(messages):
        place = TopicPosition(each.topic(), each.partition())
        if place not in found:
            found[place] = each.offset() + 1
            if len(found) == partitions_max:
                break
    return found


def raw_of(message: Any) -> RawRecord:
    """Return a message of librdkafka as a record."""
    return RawRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or (),
    )


def _stage(stage: str, place: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a step. RetriableFailure passes; any other exception is one of the record, because users write steps."""
    try:
        return function(*args)
    except RetriableFailure:
        raise
    except Exception as error:
        raise BadRecord(stage, place, error) from error


def _converter(properties: Mapping[str, str], name: str, *, is_key: bool) -> Converter:
    return converter_of(
        properties.get(name) or _DEFAULTS.get(name, "JsonConverter"), _below(properties, name), is_key=is_key
    )


def _below(properties: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{name}."
    return {each.removeprefix(prefix): value for each, value in properties.items() if each.startswith(prefix)}
