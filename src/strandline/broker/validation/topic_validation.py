"""The schema ids of one topic: which are accepted, and why a record is rejected.

A verdict on an id is kept until anything is registered or deleted. What was found out about a schema is kept longer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from strandline.broker.validation.schema_topic import SchemaTopic
from strandline.codec.columns._validate import FieldRules, RecordWalk, is_compiled
from strandline.codec.columns.schema_codes import (
    ACCEPTED,
    BAD_BLOCK,
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_INT,
    BAD_LENGTH,
    BAD_NUMBER,
    BAD_SYMBOL,
    BAD_TEXT,
    BYTES_LEFT,
    EACH,
    END,
    FIRST,
    ID_REFUSED,
    KEYLESS,
    NO_ID,
    REFUSED,
    TO_JUDGE,
    TOO_DEEP,
    TOO_LONG,
    TOO_SHORT,
    WalkFault,
)
from strandline.codec.primitives import read_uvarint
from strandline.codec.record_batch import Buffer
from strandline.config.topic_config import TopicConfig
from strandline.errors import MalformedMessage
from strandline.partition.record_validation import RecordFault
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.avro.program import program_of
from strandline.schemas.failures import RegistryError
from strandline.schemas.record_names import avro_record_name, json_record_name, protobuf_messages
from strandline.schemas.records import SCHEMAS_TOPIC, SchemaContent
from strandline.schemas.registered_ids import RegisteredIds
from strandline.schemas.resolving import source_of
from strandline.schemas.types import InvalidSchema

STEPS_PER_TURN_MAX: Final = 500_000 if is_compiled() else 8_000
"""Codes of Avro programs that are run in one turn of the loop: a few milliseconds, compiled or not."""
JUDGED_PER_TURN_MAX: Final = 1_000
PARSED_PER_TURN_MAX: Final = 4
"""Ids that are judged in one turn, without and with their schemas: a batch with more of them takes several turns."""
IDS_MAX: Final = 10_000
"""Ids whose verdict is kept for the keys, and for the values, of one topic."""
CODES_MAX: Final = 4_000_000
"""Codes of all programs of one topic that are kept."""
SCHEMA_CHARACTERS_MAX: Final = 100_000
"""Characters of a schema, with all that it refers to, that a broker parses: some tens of milliseconds, once."""
REASON_CHARACTERS_MAX: Final = 300

TOPIC_NAME: Final = "TopicNameStrategy"
RECORD_NAME: Final = "RecordNameStrategy"

_FAULTS: Final = {
    TOO_SHORT: "it ends too early",
    BAD_NUMBER: "a number is too long",
    BAD_INT: "an int has more than 32 bits",
    BAD_SYMBOL: "an enum has no such symbol",
    BAD_BRANCH: "a union has no such branch",
    BAD_LENGTH: "a length is negative or beyond its end",
    BAD_TEXT: "a string is not UTF-8",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_BLOCK: "a block of an array or map has another size than it states",
    TOO_DEEP: "it is nested too deep",
    TOO_LONG: "it takes too many steps for its size",
    BYTES_LEFT: "bytes follow",
}


class _Refusal(Exception):
    """Why a key or value is not accepted."""

    def __init__(self, reason: str, *, may_pass_later: bool = False) -> None:
        super().__init__(reason)
        self.may_pass_later = may_pass_later


@dataclass(slots=True)
class _KnownSchema:
    """What was found out about a schema, which an id stands for."""

    content: SchemaContent
    name: str | None = None
    """Of its record type: empty if it has none, None if it was not looked for."""
    messages: dict[tuple[int, ...], str] | None = None
    """Names of Protobuf messages, by their indexes."""
    place: int = -1
    """Where its program begins."""


class _FieldValidation:
    """The keys, or the values, of a topic."""

    def __init__(self, field: str, topic: str, strategy: str, *, is_strict: bool) -> None:
        self.field = field
        self.rules = FieldRules()
        self._topic = topic
        self._strategy = strategy.rpartition(".")[2]
        self._is_strict = is_strict
        self._refusals: dict[int, _Refusal] = {}
        self._known: dict[int, _KnownSchema] = {}
        self._program = array("i", (END,))

    @property
    def needs_texts(self) -> bool:
        return self._is_strict or self._strategy != TOPIC_NAME

    def forget(self, *, with_schemas: bool) -> None:
        """Forget all verdicts, and with `with_schemas` what ids stand for."""
        self.rules.modes.clear()
        self._refusals.clear()
        if with_schemas:
            self._known.clear()
            self._program = array("i", (END,))

    def limit(self) -> None:
        """Forget everything if it is too much."""
        if len(self.rules.modes) > IDS_MAX or len(self._program) > CODES_MAX:
            self.forget(with_schemas=True)

    # Verdicts

    def judge(self, registered: RegisteredIds, schema_id: int) -> None:
        """Decide what is done with an id."""
        try:
            mode = self._mode_of(registered, schema_id)
        except _Refusal as refusal:
            self._refusals[schema_id] = refusal
            mode = REFUSED
        self.rules.modes[schema_id] = mode

    def _mode_of(self, registered: RegisteredIds, schema_id: int) -> int:
        if self._strategy == TOPIC_NAME:
            self._check_subject(registered, schema_id, "")
        if not self.needs_texts:
            return ACCEPTED
        place = registered.place_of(schema_id)
        if place is None:
            raise _Refusal("which is not registered", may_pass_later=True)
        subject, content = place
        known = self._known.get(schema_id)
        if known is None or known.content != content:
            # Only an import gives an id a second time.
            known = self._known[schema_id] = _KnownSchema(content)
        if len(content.text) > SCHEMA_CHARACTERS_MAX:
            raise _Refusal(f"whose schema is larger than the {SCHEMA_CHARACTERS_MAX} characters that a broker parses")
        try:
            if content.type == "PROTOBUF":
                return self._mode_of_protobuf(registered, schema_id, known)
            if self._strategy != TOPIC_NAME:
                self._check_subject(registered, schema_id, self._name_of(known))
            if content.type == "AVRO" and self._is_strict:
                return self._place_of(registered, subject, known)
        except (InvalidSchema, RegistryError) as error:
            # A schema that it refers to may come later.
            raise _Refusal(f"whose schema cannot be read: {error}", may_pass_later=True) from None
        return ACCEPTED

    def _name_of(self, known: _KnownSchema) -> str:
        """Return the name of the record type."""
        if known.name is None:
            name_of = avro_record_name if known.content.type == "AVRO" else json_record_name
            known.name = name_of(known.content.text) or ""
        if not known.name:
            raise _Refusal(f"whose schema has no name, and {self._strategy} needs one")
        return known.name

    def _check_subject(self, registered: RegisteredIds, schema_id: int, name: str) -> None:
        if self._strategy == TOPIC_NAME:
            subject = f"{self._topic}-{self.field}"
        else:
            subject = name if self._strategy == RECORD_NAME else f"{self._topic}-{name}"
        versions = registered.versions_with(subject, schema_id)
        if any(not each.is_deleted for each in versions):
            return
        if versions:
            reason = f"which was deleted from subject {subject}"
        elif registered.has_id(schema_id):
            reason = f"which is not registered under subject {subject}"
        else:
            reason = "which is not registered"
        # The record that says otherwise may be in the topic already.
        raise _Refusal(reason, may_pass_later=True)

    def _place_of(self, registered: RegisteredIds, subject: str, known: _KnownSchema) -> int:
        """Return where the program of an Avro schema begins."""
        if known.place < 0:
            source = source_of(registered, subject, known.content)
            if source.characters > SCHEMA_CHARACTERS_MAX:
                raise InvalidSchema(f"it and its references have more than {SCHEMA_CHARACTERS_MAX} characters")
            schema = AvroType().parse(source.text, dict(source.references))
            known.place = len(self._program)
            # A new array, because the walk holds a view of the one before.
            self._program = self._program + array("i", program_of(schema.node, known.place))
            self.rules.set_program(self._program)
        return known.place

    # Protobuf: the payload says which message of the schema it is

    def _mode_of_protobuf(self, registered: RegisteredIds, schema_id: int, known: _KnownSchema) -> int:
        if known.messages is None:
            try:
                known.messages = protobuf_messages(known.content.text)
            except ModuleNotFoundError:
                raise _Refusal(
                    "whose schema is Protobuf, and this broker lacks `pip install 'strandline[registry]'`"
                ) from None
        try:
            self._check_message(registered, schema_id, (0,))
        except _Refusal:
            return EACH
        return FIRST

    def _check_message(self, registered: RegisteredIds, schema_id: int, indexes: tuple[int, ...]) -> None:
        messages = self._known[schema_id].messages
        name = None if messages is None else messages.get(indexes)
        if name is None:
            raise _Refusal("whose schema has no such message")
        if self._strategy != TOPIC_NAME:
            self._check_subject(registered, schema_id, name)

    def judge_message(self, registered: RegisteredIds, schema_id: int, payload: memoryview) -> _Refusal | None:
        """Return why a Protobuf payload is not accepted, or None."""
        try:
            self._check_message(registered, schema_id, _message_indexes(payload))
        except _Refusal as refusal:
            return refusal
        except MalformedMessage:
            return _Refusal("and no message index behind it")
        return None

    def refusal_of(self, schema_id: int) -> _Refusal:
        return self._refusals[schema_id]


class TopicValidation:
    """What a topic asks of its records. All its partitions on this broker share it."""

    def __init__(self, topic: str, config: TopicConfig, registered: RegisteredIds, schema_topic: SchemaTopic) -> None:
        self._registered = registered
        self._schema_topic = schema_topic
        is_strict = config.schema_validation == "strict"
        self._key = self._value = None
        if config.key_schema_validation:
            self._key = _FieldValidation("key", topic, config.key_subject_name_strategy, is_strict=is_strict)
        if config.value_schema_validation:
            self._value = _FieldValidation("value", topic, config.value_subject_name_strategy, is_strict=is_strict)
        self._fields = [each for each in (self._key, self._value) if each is not None]
        self.needs_texts = any(each.needs_texts for each in self._fields)
        self._walk = RecordWalk(
            None if self._key is None else self._key.rules,
            None if self._value is None else self._value.rules,
            config.compact,
            is_strict,
            STEPS_PER_TURN_MAX,
        )
        self._changes, self._beginnings = registered.changes, registered.beginnings

    def catch_up(self, on_caught_up: Callable[[bool], object]) -> None:
        self._schema_topic.catch_up(on_caught_up)

    def check(
        self,
        payload: Buffer,
        position: int,
        end: int,
        row: int,
        row_end: int,
        base_timestamp: int,
        faults: list[RecordFault],
    ) -> tuple[int, int]:
        registered = self._registered
        if registered.changes != self._changes:
            for field in self._fields:
                field.forget(with_schemas=registered.beginnings != self._beginnings)
            self._changes, self._beginnings = registered.changes, registered.beginnings
        walk = self._walk
        found: list[WalkFault] = []
        position = walk.check(payload, position, end, row, row_end, base_timestamp, found)
        if walk.new_id < 0 and not found:
            return position, walk.row
        left = PARSED_PER_TURN_MAX if self.needs_texts else JUDGED_PER_TURN_MAX
        while walk.new_id >= 0 and left:
            left -= 1
            new_in = self._key if walk.is_new_key else self._value
            assert new_in is not None
            new_in.judge(registered, walk.new_id)
            position = walk.check(payload, position, end, walk.row, row_end, base_timestamp, found)
        row = walk.row
        for each in found:
            fault = self._fault(registered, payload, each)
            if fault is not None:
                faults.append(fault)
        for field in self._fields:
            field.limit()
        return position, row

    def _fault(self, registered: RegisteredIds, payload: Buffer, found: WalkFault) -> RecordFault | None:
        row, is_key, schema_id, start, end, why, at = found
        if why == KEYLESS:
            return RecordFault(row, "a compacted topic takes no records without a key", False)
        field = self._key if is_key else self._value
        assert field is not None
        if why == NO_ID:
            reason = f"its {field.field} has no schema id, which is a zero byte and four bytes before the payload"
            return RecordFault(row, reason, False)
        if why in _FAULTS:
            reason = f"its {field.field} does not decode with schema id {schema_id}: {_FAULTS[why]}, at byte {at}"
            return RecordFault(row, reason, False)
        assert why in (ID_REFUSED, TO_JUDGE)
        refusal: _Refusal | None
        if why == ID_REFUSED:
            refusal = field.refusal_of(schema_id)
        else:
            refusal = field.judge_message(registered, schema_id, memoryview(payload)[start + 5 : end])
        if refusal is None:
            return None
        reason = f"its {field.field} has schema id {schema_id}, {refusal}"
        if refusal.may_pass_later and not self._schema_topic.exists:
            reason += f": the topic {SCHEMAS_TOPIC} does not exist"
        return RecordFault(row, reason[:REASON_CHARACTERS_MAX], refusal.may_pass_later)


def _message_indexes(payload: memoryview) -> tuple[int, ...]:
    """Return the indexes before a Protobuf message; a count of zero stands for the first message."""
    try:
        count, at = _zigzag(payload, 0)
        if not 0 <= count <= len(payload):
            raise MalformedMessage(f"{count} message indexes in {len(payload)} bytes")
        indexes = []
        for _ in range(count):
            index, at = _zigzag(payload, at)
            indexes.append(index)
    except IndexError:
        raise MalformedMessage("message indexes that end too early") from None
    return tuple(indexes) or (0,)


def _zigzag(payload: memoryview, at: int) -> tuple[int, int]:
    raw, at = read_uvarint(payload, at)
    return (raw >> 1) ^ -(raw & 1), at
