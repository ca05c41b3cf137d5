"""A codec for each schema type: from payloads to JSON values and back."""

from __future__ import annotations

from typing import Any, Protocol

from strandline.schemas.engines import SchemaSource
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.types import InvalidSchema


class PayloadCodec(Protocol):
    """Payloads of one schema."""

    def decode(self, payload: bytes) -> Any:
        """Return the value of a payload. Raise PayloadFailed."""

    def encode(self, value: Any) -> bytes:
        """Return the payload of a value. Raise PayloadFailed."""


class AvroCodec:
    """Payloads of one Avro schema."""

    def __init__(self, text: str, references: dict[str, str]) -> None:
        from strandline.schemas.avro.engine import AvroType
        from strandline.schemas.payloads.avro_reading import AvroToJson
        from strandline.schemas.payloads.avro_writing import JsonToAvro

        node = AvroType().parse(text, references).node
        self.decode = AvroToJson(node).read
        self.encode = JsonToAvro(node).write


def codec_of(source: SchemaSource, *, message: str | None = None) -> PayloadCodec:
    """Return the codec of a schema. Raise InvalidSchema, or PayloadFailed if a Protobuf file has no such message.

    Libraries are imported here, so that Avro needs none, and ModuleNotFoundError names the one that is missing.
    """
    references = dict(source.references)
    if message is not None and source.type != "PROTOBUF":
        raise PayloadFailed(f"a schema of type {source.type} has no messages to choose from")
    match source.type:
        case "AVRO":
            return AvroCodec(source.text, references)
        case "JSON":
            from strandline.schemas.payloads.json_payload import JsonCodec

            return JsonCodec(source.text, references)
        case "PROTOBUF":
            from strandline.schemas.payloads.protobuf_payload import ProtobufCodec

            return ProtobufCodec(source.text, references, message)
    raise InvalidSchema(f"the schema type {source.type} is not known here")
