"""The engine for Protobuf as the registry uses it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from strandline.schemas.protobuf.diff import FieldDifference, compare
from strandline.schemas.protobuf.linking import UNNAMED, Linked, link
from strandline.schemas.protobuf.options import OptionPool
from strandline.schemas.protobuf.parser import parse_text
from strandline.schemas.protobuf.printing import printed
from strandline.schemas.types import TEXT_BYTES_MAX, Incompatibility, InvalidSchema

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")


@dataclass(frozen=True)
class ParsedProtobufSchema:
    """A Protobuf file that is linked with all that it imports."""

    linked: Linked = field(repr=False)

    def canonical(self) -> str:
        """Return the text of the file, which is the same for a text and for its descriptor."""
        return printed(self.linked)

    def normalized(self) -> str:
        """Return the text with full names of types, and with all sorted that has no order."""
        return printed(self.linked, normalize=True)

    def serialized(self) -> str:
        """Return the FileDescriptorProto in base64, for `format=serialized`."""
        return serialized(self.linked.file)

    def changes(self, writer: ParsedProtobufSchema) -> list[FieldDifference]:
        """Return all differences from `writer` to this schema, compatible ones included."""
        return compare(writer.linked, self.linked)

    def differences(self, writer: ParsedProtobufSchema) -> list[Incompatibility]:
        """Return why this schema, as reader, can not read what `writer` wrote; empty if it can."""
        return [
            Incompatibility(each.kind, each.place, each.sentence())
            for each in dict.fromkeys(self.changes(writer))
            if not each.is_compatible
        ]


class ProtobufEngine:
    """The schema type PROTOBUF."""

    name = "PROTOBUF"

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedProtobufSchema:
        """Parse a text, or a FileDescriptorProto in base64, or raise InvalidSchema."""
        try:
            files = {name: read_file(each, f"The referenced schema {name!r}") for name, each in references.items()}
            linked = _linked(read_file(text), files)
            if _BASE64.fullmatch(text):
                # A descriptor can hold names and values that no text has. Its print must parse, and is what counts.
                linked = _linked(parse_text(printed(linked)), files)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, DecodeError):
            raise InvalidSchema("The FileDescriptorProto has contents that Protobuf does not allow.") from None
        return ParsedProtobufSchema(linked)


def serialized(file: FileDescriptorProto) -> str:
    """Return a FileDescriptorProto in base64."""
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _linked(file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto]) -> Linked:
    file.name = UNNAMED
    linked = link(file, files)
    OptionPool(linked).interpret()
    return linked


def read_file(text: str, what: str = "The schema") -> FileDescriptorProto:
    """Return the descriptor of a text or of base64, which is not linked yet."""
    if len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"{what} has more than {TEXT_BYTES_MAX:,} bytes.")
    if not text.strip():
        raise InvalidSchema(f"{what} is empty.")
    try:
        file = _descriptor(text) if _BASE64.fullmatch(text) else parse_text(text)
    except InvalidSchema as error:
        raise InvalidSchema(f"{what} is not valid Protobuf: {str(error)[0].lower()}{str(error)[1:]}") from None
    # Comments and places are no part of a schema.
    file.ClearField("source_code_info")
    return file


def _descriptor(text: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError):
        raise InvalidSchema("It is neither a text nor a FileDescriptorProto in base64.") from None
