"""Make a FileDescriptorProto from a `.proto` text. Names of types stay as they are written; `linking` resolves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)

from strandline.schemas.protobuf.tokens import ProtoToken, tokens, unquoted
from strandline.schemas.protobuf.values import OptionValue, read_option, scalar_types
from strandline.schemas.types import DEPTH_MAX, InvalidSchema

FIELD_NUMBER_MAX: Final = 536_870_911
"""The largest field number of Protobuf."""
ENUM_NUMBER_MAX: Final = 2**31 - 1
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_MAP_KEYS: Final = frozenset(scalar_types()) - {"double", "float", "bytes"}


def parse_text(text: str) -> FileDescriptorProto:
    """Return the descriptor of a text, or raise InvalidSchema with the line that is wrong."""
    return _Parser(tokens(text)).file()


class _Parser:
    """A reader of tokens, one rule of the grammar a method."""

    def __init__(self, read: list[ProtoToken]) -> None:
        self._tokens = read
        self._position = 0
        self._depth = 0
        self._result = FileDescriptorProto()

    # Tokens.

    @property
    def _next(self) -> ProtoToken:
        return self._tokens[self._position]

    def _take(self) -> ProtoToken:
        token = self._tokens[self._position]
        if token.text:
            self._position += 1
        return token

    def _is(self, text: str) -> bool:
        return self._next.text == text and self._next.kind != "string"

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._wrong(f"{text!r}")

    def _wrong(self, wanted: str) -> InvalidSchema:
        return InvalidSchema(f"Line {self._next.line} has {self._next.shown} where {wanted} must be.")

    def _name(self) -> str:
        if self._next.kind != "name":
            raise self._wrong("a name")
        return self._take().text

    def _dotted(self) -> str:
        text = "." if self._accept(".") else ""
        text += self._name()
        while self._accept("."):
            text += "." + self._name()
        return text

    def _string(self) -> str:
        if self._next.kind != "string":
            raise self._wrong("a string")
        line = self._next.line
        value = b""
        while self._next.kind == "string":
            value += unquoted(self._take())
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidSchema(f"Line {line} has a string that is not UTF-8.") from None

    def _integer(self, low: int, high: int) -> int:
        sign = -1 if self._accept("-") else 1
        token = self._next
        try:
            if token.kind != "number":
                raise ValueError
            text = token.text
            base = 16 if text[:2] in ("0x", "0X") else 8 if text.startswith("0") and len(text) > 1 else 10
            value = sign * int(text, base)
        except ValueError:
            raise self._wrong("an integer") from None
        if not low <= value <= high:
            raise InvalidSchema(f"Line {token.line} has {value}, and only {low} to {high} are possible there.")
        self._take()
        return value

    def _block(self, one: Callable[[], None]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSchema(f"Line {self._next.line} is nested more than {DEPTH_MAX} levels deep.")
        self._expect("{")
        while not self._accept("}"):
            if not self._next.text:
                raise self._wrong("'}'")
            if not self._accept(";"):
                one()
        self._depth -= 1

    # The file.

    def file(self) -> FileDescriptorProto:
        if self._is("syntax"):
            self._syntax()
        elif self._is("edition"):
            self._edition()
        rules: dict[str, Callable[[], None]] = {
            "package": self._package,
            "import": self._import,
            "option": lambda: self._option(self._result.options),
            "message": lambda: self._message(self._result.message_type.add()),
            "enum": lambda: self._enum(self._result.enum_type.add()),
            "service": lambda: self._service(self._result.service.add()),
            "extend": lambda: self._extend(self._result.extension, self._result.message_type),
        }
        while self._next.text:
            if self._accept(";"):
                continue
            if self._next.kind != "name" or self._next.text not in rules:
                raise self._wrong("a declaration")
            rules[self._take().text]()
        return self._result

    def _syntax(self) -> None:
        self._take()
        self._expect("=")
        syntax = self._string()
        if syntax not in ("proto2", "proto3"):
            raise InvalidSchema(f"The syntax {syntax[:40]!r} is neither proto2 nor proto3.")
        self._expect(";")
        # An absent syntax means proto2, so proto2 has one form.
        if syntax == "proto3":
            self._result.syntax = syntax

    def _edition(self) -> None:
        self._take()
        self._expect("=")
        edition = self._string()
        number = Edition.DESCRIPTOR.values_by_name.get(f"EDITION_{edition}")
        if number is None or number.number < Edition.EDITION_2023:
            raise InvalidSchema(f"The edition {edition[:40]!r} is unknown.")
        self._expect(";")
        self._result.syntax = "editions"
        self._result.edition = number.number

    def _package(self) -> None:
        if self._result.package:
            raise InvalidSchema(f"Line {self._next.line} has a second package.")
        self._result.package = self._dotted()
        self._expect(";")

    def _import(self) -> None:
        is_public, is_weak = self._accept("public"), self._accept("weak")
        if not (is_public or is_weak):
            self._accept("option")
        position = len(self._result.dependency)
        self._result.dependency.append(self._string())
        if is_public:
            self._result.public_dependency.append(position)
        if is_weak:
            self._result.weak_dependency.append(position)
        self._expect(";")

    # Messages.

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: DescriptorProto) -> None:
        def one() -> None:
            following = self._tokens[self._position + 1].text if self._next.text else ""
            word = self._next.text
            # A field may have a type with the name of a keyword, as `message x = 1`.
            if word in ("message", "enum", "extend", "oneof") and self._is_block_ahead(word):
                self._take()
                match word:
                    case "message":
                        self._message(message.nested_type.add())
                    case "enum":
                        self._enum(message.enum_type.add())
                    case "extend":
                        self._extend(message.extension, message.nested_type)
                    case "oneof":
                        self._oneof(message)
            elif word == "option" and following != "=":
                self._take()
                self._option(message.options)
            elif word == "reserved":
                self._take()
                self._reserved(message)
            elif word == "extensions":
                self._take()
                self._extensions(message)
            else:
                self._field(message.field.add(), message.nested_type, message)

        self._block(one)
        self._finish_optionals(message)

    def _is_block_ahead(self, word: str) -> bool:
        position = self._position + 1
        while self._tokens[position].kind == "name" or (word == "extend" and self._tokens[position].text == "."):
            position += 1
        return self._tokens[position].text == "{"

    def _finish_optionals(self, message: DescriptorProto) -> None:
        """Add the oneof of each `optional` field in proto3, after all that are written."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_free_name(f"_{field.name}", message))

    def _field(
        self, field: FieldDescriptorProto, siblings: Any, message: DescriptorProto | None, oneof: int | None = None
    ) -> None:
        has_label = self._next.text in _LABELS and self._tokens[self._position + 1].text not in ("=", "")
        label = self._take().text if has_label else ""
        if label and oneof is not None:
            raise InvalidSchema(f"Line {self._next.line} has a label in a oneof.")
        if not label and oneof is None and not self._result.syntax and not self._is("map"):
            raise self._wrong("optional, required or repeated (the syntax is proto2)")
        if label == "required" and self._result.syntax:
            raise InvalidSchema(f"Line {self._next.line} has a required field, which only proto2 has.")
        field.label = _LABELS[label or "optional"]
        if label == "optional" and self._result.syntax == "proto3" and message is not None:
            field.proto3_optional = True
        if oneof is not None:
            field.oneof_index = oneof
        if self._is("group") and self._tokens[self._position + 2].text == "=":
            self._group(field, siblings)
            return
        if self._is("map") and self._tokens[self._position + 1].text == "<":
            if label or oneof is not None or message is None:
                raise InvalidSchema(f"Line {self._next.line} has a map with a label, in a oneof or as an extension.")
            self._map(field, message)
        else:
            _set_type(field, self._dotted())
            field.name = self._name()
            self._number(field)
        self._field_options(field)
        self._expect(";")

    def _number(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        line = self._next.line
        field.number = self._integer(1, FIELD_NUMBER_MAX)
        if 19_000 <= field.number <= 19_999:
            raise InvalidSchema(f"Line {line} has the field number {field.number}, which Protobuf reserves for itself.")

    def _group(self, field: FieldDescriptorProto, siblings: Any) -> None:
        self._take()
        group = siblings.add(name=self._name())
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = group.name
        field.name = group.name.lower()
        self._number(field)
        self._field_options(field)
        self._message_body(group)

    def _map(self, field: FieldDescriptorProto, message: DescriptorProto) -> None:
        self._take()
        self._expect("<")
        line = self._next.line
        key = self._dotted()
        if key not in _MAP_KEYS:
            raise InvalidSchema(f"Line {line} has a map with keys of type {key[:40]!r}.")
        self._expect(",")
        value = self._dotted()
        self._expect(">")
        field.name = self._name()
        self._number(field)
        entry = message.nested_type.add(name=map_entry_name(field.name))
        entry.options.map_entry = True
        for number, (name, type_name) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), type_name)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _field_options(self, field: FieldDescriptorProto) -> None:
        for option in self._bracketed_options():
            match option.simple_name:
                case "default":
                    field.default_value = option.as_default(field)
                case "json_name":
                    field.json_name = option.as_text()
                case _:
                    option.set_on(field.options)

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof: OneofDescriptorProto = message.oneof_decl.add(name=self._name())

        def one() -> None:
            if self._is("option") and self._tokens[self._position + 1].text != "=":
                self._take()
                self._option(oneof.options)
            else:
                self._field(message.field.add(), message.nested_type, message, index)

        self._block(one)

    def _extend(self, fields: Any, siblings: Any) -> None:
        extendee = self._dotted()

        def one() -> None:
            field = fields.add(extendee=extendee)
            self._field(field, siblings, None)

        self._block(one)

    def _ranges(self, low: int, high: int) -> list[tuple[int, int]]:
        ranges = []
        while True:
            start = self._integer(low, high)
            end = start
            if self._accept("to"):
                end = high if self._accept("max") else self._integer(start, high)
            ranges.append((start, end))
            if not self._accept(","):
                return ranges

    def _names(self) -> list[str]:
        # Since editions the names are not strings.
        names = []
        while True:
            names.append(self._string() if self._next.kind == "string" else self._name())
            if not self._accept(","):
                return names

    def _reserved(self, message: DescriptorProto) -> None:
        if self._next.kind == "number":
            for start, end in self._ranges(1, FIELD_NUMBER_MAX):
                message.reserved_range.add(start=start, end=end + 1)
        else:
            message.reserved_name.extend(self._names())
        self._expect(";")

    def _extensions(self, message: DescriptorProto) -> None:
        added = [
            message.extension_range.add(start=start, end=end + 1) for start, end in self._ranges(1, FIELD_NUMBER_MAX)
        ]
        for option in self._bracketed_options():
            for each in added:
                option.set_on(each.options)
        self._expect(";")

    # Enums and services.

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._name()

        def one() -> None:
            if self._is("option") and self._tokens[self._position + 1].text != "=":
                self._take()
                self._option(enum.options)
            elif self._is("reserved") and self._tokens[self._position + 1].text != "=":
                self._take()
                if self._next.kind == "number" or self._is("-"):
                    for start, end in self._ranges(-ENUM_NUMBER_MAX - 1, ENUM_NUMBER_MAX):
                        enum.reserved_range.add(start=start, end=end)
                else:
                    enum.reserved_name.extend(self._names())
                self._expect(";")
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer(-ENUM_NUMBER_MAX - 1, ENUM_NUMBER_MAX)
                for option in self._bracketed_options():
                    option.set_on(value.options)
                self._expect(";")

        self._block(one)

    def _service(self, service: ServiceDescriptorProto) -> None:
        service.name = self._name()

        def one() -> None:
            if self._accept("option"):
                self._option(service.options)
            else:
                self._expect("rpc")
                self._method(service.method.add())

        self._block(one)

    def _method(self, method: MethodDescriptorProto) -> None:
        method.name = self._name()
        method.client_streaming, method.input_type = self._message_of_method()
        self._expect("returns")
        method.server_streaming, method.output_type = self._message_of_method()
        if not method.client_streaming:
            method.ClearField("client_streaming")
        if not method.server_streaming:
            method.ClearField("server_streaming")
        if self._is("{"):

            def one() -> None:
                self._expect("option")
                self._option(method.options)

            self._block(one)
        else:
            self._expect(";")

    def _message_of_method(self) -> tuple[bool, str]:
        self._expect("(")
        # A message may have the name `stream`.
        is_stream = self._is("stream") and self._tokens[self._position + 1].text != ")" and self._accept("stream")
        name = self._dotted()
        self._expect(")")
        return is_stream, name

    # Options.

    def _option(self, options: Any) -> None:
        self._read_option().set_on(options)
        self._expect(";")

    def _bracketed_options(self) -> list[OptionValue]:
        found: list[OptionValue] = []
        if self._accept("["):
            found.append(self._read_option())
            while self._accept(","):
                found.append(self._read_option())
            self._expect("]")
        return found

    def _read_option(self) -> OptionValue:
        option, self._position = read_option(self._tokens, self._position)
        return option


def map_entry_name(field_name: str) -> str:
    """Return the name of the message that protoc makes for the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def _free_name(name: str, message: DescriptorProto) -> str:
    taken = {each.name for each in (*message.field, *message.oneof_decl, *message.nested_type, *message.enum_type)}
    while name in taken:
        name = f"X{name}"
    return name


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    scalar = scalar_types().get(name)
    if scalar is not None:
        field.type = scalar
    else:
        field.type_name = name
