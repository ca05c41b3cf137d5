"""Payloads of Protobuf: values of Protobuf's JSON mapping, with the names of fields as the schema has them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import read_indexes, write_indexes
from strandline.schemas.protobuf.engine import ProtobufEngine


class ProtobufCodec:
    """Payloads of one Protobuf file. A payload says which message it is."""

    def __init__(self, text: str, references: Mapping[str, str], message: str | None = None) -> None:
        linked = ProtobufEngine().parse(text, references).linked
        self._pool = linked.pool()
        self._file = linked.file
        self._classes: dict[tuple[int, ...], Any] = {}
        self._written = (0,) if message is None else self._place_of(message)

    def decode(self, payload: bytes) -> Any:
        indexes, at = read_indexes(payload)
        message = self._class_of(indexes)()
        try:
            message.ParseFromString(payload[at:])
        except DecodeError as error:
            raise PayloadFailed(f"it is no {message.DESCRIPTOR.full_name}: {error}") from None
        try:
            return MessageToDict(
                message,
                always_print_fields_with_no_presence=True,
                preserving_proto_field_name=True,
                descriptor_pool=self._pool,
            )
        except (JsonFormatError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise PayloadFailed(f"{message.DESCRIPTOR.full_name} cannot be shown as JSON: {error}") from None

    def encode(self, value: Any) -> bytes:
        message = self._class_of(self._written)()
        if not isinstance(value, dict):
            raise PayloadFailed(f"it is no object with the fields of {message.DESCRIPTOR.full_name}")
        try:
            ParseDict(value, message, descriptor_pool=self._pool)
            content: bytes = message.SerializeToString()
        except (JsonFormatError, EncodeError, ValueError, TypeError) as error:
            raise PayloadFailed(str(error)) from None
        return write_indexes(self._written) + content

    def _class_of(self, indexes: tuple[int, ...]) -> Any:
        known = self._classes.get(indexes)
        if known is None:
            names = []
            here: Any = self._file.message_type
            for index in indexes:
                if not 0 <= index < len(here):
                    raise PayloadFailed(f"the schema has no message {list(indexes)}")
                names.append(here[index].name)
                here = here[index].nested_type
            full = ".".join(([self._file.package] if self._file.package else []) + names)
            known = self._classes[indexes] = GetMessageClass(self._pool.FindMessageTypeByName(full))
        return known

    def _place_of(self, message: str) -> tuple[int, ...]:
        """Return where the file has a message, by its name with or without the package."""
        places: dict[str, tuple[int, ...]] = {}
        waiting: list[tuple[str, tuple[int, ...], DescriptorProto]] = [
            (each.name, (index,), each) for index, each in enumerate(self._file.message_type)
        ]
        while waiting:
            name, place, found = waiting.pop()
            places[name] = place
            waiting += [(f"{name}.{each.name}", (*place, n), each) for n, each in enumerate(found.nested_type)]
        wanted = message.removeprefix(f"{self._file.package}.") if self._file.package else message
        if wanted not in places:
            nearest = get_close_matches(wanted, places, n=1)
            meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise PayloadFailed(f"the schema has no message {message!r}{meant}")
        return places[wanted]
