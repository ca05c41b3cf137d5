"""Options of a `.proto` text: their names and values, and how they are set on a descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption

from strandline.schemas.protobuf.tokens import ProtoToken, unquoted
from strandline.schemas.types import DEPTH_MAX, InvalidSchema

_CLOSING: Final = {"{": "}", "[": "]", "<": ">"}
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_REAL: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})


@cache
def scalar_types() -> dict[str, int]:
    """Return the number of each scalar type by its name in a text."""
    named = {6: "fixed64", 7: "fixed32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64"}
    named |= {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
    named[13] = "uint32"
    return {name: number for number, name in named.items()}


@dataclass(frozen=True)
class OptionValue:
    """One option: the parts of its name (and whether each is an extension), and its value as tokens."""

    parts: tuple[tuple[str, bool], ...]
    value: tuple[ProtoToken, ...]
    line: int

    @property
    def simple_name(self) -> str:
        name, is_extension = self.parts[0]
        return "" if is_extension or len(self.parts) > 1 else name

    def as_text(self) -> str:
        """Return the value of an option that is a string."""
        return self.as_bytes().decode(errors="replace")

    def as_bytes(self) -> bytes:
        if any(token.kind != "string" for token in self.value):
            raise InvalidSchema(f"Line {self.line} has an option that must be a string.")
        return b"".join(map(unquoted, self.value))

    def as_default(self, field: FieldDescriptorProto) -> str:
        """Return the default of a field as descriptors write it."""
        if field.type == FieldDescriptorProto.TYPE_STRING:
            return self.as_text()
        if field.type == FieldDescriptorProto.TYPE_BYTES:
            return str(text_encoding.CEscape(self.as_bytes(), False))
        text = "".join(token.text for token in self.value)
        # The type of a message or enum is not known before linking.
        if not field.HasField("type") or field.type == FieldDescriptorProto.TYPE_BOOL:
            return text
        if field.type in (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT):
            return _shortest(self._number(float))
        return str(self._number(int))

    def set_on(self, options: Any) -> None:
        """Set this option on an options message. What is not known by now stays uninterpreted."""
        try:
            is_set = self._set_known(options)
        except (ValueError, TypeError, OverflowError):
            raise InvalidSchema(f"Line {self.line} has a value that its option can not have.") from None
        if not is_set:
            options.uninterpreted_option.append(self._uninterpreted())

    def _set_known(self, options: Any) -> bool:
        message = options
        for position, (name, is_extension) in enumerate(self.parts):
            field = None if is_extension else message.DESCRIPTOR.fields_by_name.get(name)
            if field is None or name == "uninterpreted_option":
                return False
            if position < len(self.parts) - 1:
                if field.message_type is None or field.is_repeated:
                    return False
                message = getattr(message, name)
        assert field is not None
        if field.message_type is not None:
            return False
        value = self._python_value(field)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
        return True

    def _python_value(self, field: FieldDescriptor) -> Any:
        text = "".join(token.text for token in self.value)
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                return self.as_bytes() if field.type == FieldDescriptor.TYPE_BYTES else self.as_text()
            case FieldDescriptor.CPPTYPE_BOOL:
                return {"true": True, "false": False}[text] if text in ("true", "false") else _fail()
            case FieldDescriptor.CPPTYPE_ENUM:
                value = field.enum_type.values_by_name.get(text)
                return _fail() if value is None else value.number
        return self._number(int) if field.cpp_type in _WHOLE else self._number(float)

    def _number(self, kind: type[int] | type[float]) -> Any:
        text = "".join(token.text for token in self.value).lower()
        try:
            if kind is float:
                return float(text.removesuffix("f") if text.lstrip("-") not in ("inf", "nan") else text)
            digits = text.lstrip("-")
            base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") and len(digits) > 1 else 10
            return int(text, base)
        except ValueError:
            raise InvalidSchema(f"Line {self.line} has {text[:40]!r}, which is not a number there.") from None

    def _uninterpreted(self) -> UninterpretedOption:
        option = UninterpretedOption()
        for name, is_extension in self.parts:
            option.name.add(name_part=name, is_extension=is_extension)
        first = self.value[0]
        text = "".join(token.text for token in self.value)
        if first.text == "{":
            # Strings beside each other need a space, because two quotes would be one escape.
            option.aggregate_value = " ".join(token.text for token in self.value[1:-1])
        elif first.kind == "string":
            option.string_value = self.as_bytes()
        elif first.kind == "name":
            option.identifier_value = text
        elif "." in text or "e" in text.lower().removeprefix("-0x") or text.lstrip("-")[:1].isalpha():
            option.double_value = self._number(float)
        else:
            number = self._number(int)
            if number < 0:
                option.negative_int_value = number
            else:
                option.positive_int_value = number
        return option


def _fail() -> Any:
    raise ValueError


def _shortest(number: float) -> str:
    if number != number:
        return "nan"
    if number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "-inf"
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


def read_option(tokens: list[ProtoToken], position: int) -> tuple[OptionValue, int]:
    """Read `name = value` from a position, and return it with the position behind it."""
    line = tokens[position].line
    parts = []
    while True:
        is_extension = tokens[position].text == "("
        position += is_extension
        name = ""
        while tokens[position].kind == "name" or (is_extension and tokens[position].text == "."):
            name += tokens[position].text
            position += 1
        if not name or (is_extension and tokens[position].text != ")"):
            raise InvalidSchema(f"Line {tokens[position].line} has {tokens[position].shown} in the name of an option.")
        position += is_extension
        parts.append((name, is_extension))
        if tokens[position].text != ".":
            break
        position += 1
    if tokens[position].text != "=":
        raise InvalidSchema(f"Line {tokens[position].line} has {tokens[position].shown} where '=' must be.")
    start = position + 1
    end = _end_of_value(tokens, start)
    return OptionValue(tuple(parts), tuple(tokens[start:end]), line), end


def _end_of_value(tokens: list[ProtoToken], position: int) -> int:
    first = tokens[position]
    if first.text == "{" and first.kind == "symbol":
        return _end_of_aggregate(tokens, position)
    position += first.text in ("-", "+") and first.kind == "symbol"
    kind = tokens[position].kind
    if kind not in ("name", "number", "string"):
        raise InvalidSchema(f"Line {first.line} has {tokens[position].shown} where a value must be.")
    position += 1
    while kind == "string" and tokens[position].kind == "string":
        position += 1
    return position


def _end_of_aggregate(tokens: list[ProtoToken], position: int) -> int:
    open_: list[str] = []
    while True:
        token = tokens[position]
        if not token.text:
            raise InvalidSchema(f"Line {token.line} ends inside the value of an option.")
        position += 1
        if token.kind != "symbol":
            continue
        if token.text in _CLOSING:
            open_.append(_CLOSING[token.text])
            if len(open_) > DEPTH_MAX:
                raise InvalidSchema(f"Line {token.line} is nested more than {DEPTH_MAX} levels deep.")
        elif open_ and token.text == open_[-1]:
            open_.pop()
            if not open_:
                return position
        elif token.text in _CLOSING.values():
            raise InvalidSchema(f"Line {token.line} has {token.shown} in the value of an option.")
