"""Print a descriptor as text.

The form is that of Confluent's registry: messages before enums, fields before oneofs, two spaces for each level. Types
have the shortest name that means them. In the normalized form types have full names with a leading dot, and what has no
order in the schema is sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from strandline.schemas.protobuf.linking import Linked
from strandline.schemas.protobuf.options import OptionPool
from strandline.schemas.protobuf.parser import ENUM_NUMBER_MAX, FIELD_NUMBER_MAX
from strandline.schemas.protobuf.values import scalar_types

_SCALARS: Final = {number: name for name, number in scalar_types().items()}
_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
_ESCAPES: Final = {
    7: "\\a",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    39: "\\'",
    92: "\\\\",
}


def printed(linked: Linked, *, normalize: bool = False) -> str:
    """Return the text of a linked file."""
    return _Printer(linked, normalize).file()


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


def _sections(opening: str, sections: Iterable[list[str]]) -> str:
    """Return a block with an empty line between its sections."""
    body = "".join("\n" + "".join(map(_indented, section)) for section in sections if section)
    return f"{opening} {{{body}}}\n"


class _Printer:
    """A printer of one file."""

    def __init__(self, linked: Linked, normalize: bool) -> None:
        self._linked = linked
        self._normalize = normalize
        self._pool = OptionPool(linked)

    def file(self) -> str:
        file = self._linked.file
        head = self._syntax(file)
        if file.package:
            head += f"package {file.package};\n"
        sections = [
            self._imports(file),
            [f"option {each};\n" for each in self._options(file)],
            [self._message(each, _inside(file.package, each.name)) for each in file.message_type]
            + [self._enum(each) for each in file.enum_type],
            self._extends(file.extension, file.package),
            [self._service(each, file.package) for each in file.service],
        ]
        return head + "".join("\n" + "".join(section) for section in sections if section)

    def _syntax(self, file: FileDescriptorProto) -> str:
        if file.syntax == "editions":
            return f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";\n'
        if file.syntax == "proto3":
            return 'syntax = "proto3";\n'
        return "" if self._normalize else 'syntax = "proto2";\n'

    def _imports(self, file: FileDescriptorProto) -> list[str]:
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        plain = [
            f'import {"weak " if n in weak else ""}"{_escaped(name)}";\n'
            for n, name in enumerate(file.dependency)
            if n not in public
        ]
        shared = [f'import public "{_escaped(name)}";\n' for n, name in enumerate(file.dependency) if n in public]
        if self._normalize:
            return sorted(set(plain)) + sorted(set(shared))
        return plain + shared

    # Messages.

    def _message(self, message: DescriptorProto, scope: str) -> str:
        return _sections(f"message {message.name}", self._message_sections(message, scope))

    def _message_sections(self, message: DescriptorProto, scope: str) -> Iterable[list[str]]:
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        groups = {each.type_name for each in (*message.field, *message.extension) if each.type == each.TYPE_GROUP}
        yield self._reserved(
            [(r.start, r.end - 1) for r in message.reserved_range], message.reserved_name, FIELD_NUMBER_MAX
        )
        yield [f"option {each};\n" for each in self._options(message, hidden={"map_entry"})]
        top = [each for each in message.field if not each.HasField("oneof_index") or each.proto3_optional]
        yield [self._field(each, message, scope) for each in self._by_number(top) if each.type != each.TYPE_GROUP]
        yield self._oneofs(message, scope, synthetic)
        yield [self._field(each, message, scope) for each in self._by_number(top) if each.type == each.TYPE_GROUP]
        yield self._extension_ranges(message)
        yield self._extends(message.extension, scope)
        yield [
            self._message(each, _inside(scope, each.name))
            for each in message.nested_type
            if not each.options.map_entry and f".{scope}.{each.name}" not in groups
        ] + [self._enum(each) for each in message.enum_type]

    def _by_number(self, fields: Iterable[FieldDescriptorProto]) -> list[FieldDescriptorProto]:
        return sorted(fields, key=lambda each: each.number) if self._normalize else list(fields)

    def _oneofs(self, message: DescriptorProto, scope: str, synthetic: set[int]) -> list[str]:
        found = []
        for index, oneof in enumerate(message.oneof_decl):
            if index in synthetic:
                continue
            members = [each for each in message.field if each.HasField("oneof_index") and each.oneof_index == index]
            members = self._by_number(members)
            sections = [
                [f"option {each};\n" for each in self._options(oneof)],
                [self._field(each, message, scope, is_in_oneof=True) for each in members],
            ]
            found.append((members[0].number if members else 0, _sections(f"oneof {oneof.name}", sections)))
        if self._normalize:
            found.sort()
        return [text for _, text in found]

    def _reserved(self, ranges: list[tuple[int, int]], names: Iterable[str], highest: int) -> list[str]:
        numbers = [_range(start, end, highest) for start, end in (sorted(ranges) if self._normalize else ranges)]
        quote = (lambda name: name) if self._linked.file.syntax == "editions" else (lambda name: f'"{_escaped(name)}"')
        words = [quote(name) for name in (sorted(names) if self._normalize else names)]
        if self._normalize:
            return [f"reserved {each};\n" for each in (*numbers, *words)]
        return [f"reserved {', '.join(each)};\n" for each in (numbers, words) if each]

    def _extension_ranges(self, message: DescriptorProto) -> list[str]:
        ranges = list(message.extension_range)
        if self._normalize:
            ranges.sort(key=lambda each: each.start)
        return [
            f"extensions {_range(each.start, each.end - 1, FIELD_NUMBER_MAX)}{self._bracketed(self._options(each))};\n"
            for each in ranges
        ]

    def _extends(self, fields: Iterable[FieldDescriptorProto], scope: str) -> list[str]:
        by_message: dict[str, list[FieldDescriptorProto]] = {}
        for each in fields:
            by_message.setdefault(each.extendee, []).append(each)
        return [
            _sections(
                f"extend {self._type_name(name, scope)}",
                [[self._field(each, None, scope) for each in self._by_number(extensions)]],
            )
            for name, extensions in by_message.items()
        ]

    def _field(
        self, field: FieldDescriptorProto, message: DescriptorProto | None, scope: str, *, is_in_oneof: bool = False
    ) -> str:
        label = "" if is_in_oneof else self._label(field)
        if field.type == field.TYPE_GROUP:
            group = self._linked.symbols.types[field.type_name[1:]]
            assert isinstance(group, DescriptorProto)
            opening = f"{label}group {group.name} = {field.number}{self._bracketed(self._field_options(field))}"
            return _sections(opening, self._message_sections(group, field.type_name[1:]))
        entry = None
        if message is not None and field.type == field.TYPE_MESSAGE:
            entry = next((n for n in message.nested_type if field.type_name == f".{scope}.{n.name}"), None)
        if entry is not None and entry.options.map_entry:
            label, type_name = "", f"map<{self._type(entry.field[0], scope)}, {self._type(entry.field[1], scope)}>"
        else:
            type_name = self._type(field, scope)
        options = self._bracketed(self._field_options(field))
        return f"{label}{type_name} {field.name} = {field.number}{options};\n"

    def _label(self, field: FieldDescriptorProto) -> str:
        is_plain = self._linked.file.syntax in ("proto3", "editions") and not field.proto3_optional
        if is_plain and field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            return ""
        return f"{_LABELS[field.label]} "

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        return self._type_name(field.type_name, scope) if field.type_name else _SCALARS[field.type]

    def _type_name(self, full: str, scope: str) -> str:
        return full if self._normalize else self._linked.symbols.shortest(full[1:], scope)

    def _field_options(self, field: FieldDescriptorProto) -> list[str]:
        found = self._options(field)
        if field.HasField("default_value"):
            # A descriptor holds the bytes of a default with their escapes.
            text = field.default_value if field.type == field.TYPE_BYTES else _escaped(field.default_value)
            quoted = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
            found.append(f'default = "{text}"' if quoted else f"default = {field.default_value}")
        if field.HasField("json_name"):
            found.append(f'json_name = "{_escaped(field.json_name)}"')
        return sorted(found) if self._normalize else found

    # Enums and services.

    def _enum(self, enum: EnumDescriptorProto) -> str:
        ranges = [(each.start, each.end) for each in enum.reserved_range]
        values = list(enum.value)
        if self._normalize:
            values.sort(key=lambda each: (each.number, each.name))
        lines = self._reserved(ranges, enum.reserved_name, ENUM_NUMBER_MAX)
        lines += [f"option {each};\n" for each in self._options(enum)]
        lines += [f"{each.name} = {each.number}{self._bracketed(self._options(each))};\n" for each in values]
        return _sections(f"enum {enum.name}", [lines])

    def _service(self, service: ServiceDescriptorProto, scope: str) -> str:
        methods = []
        for each in service.method:
            asked = f"{'stream ' if each.client_streaming else ''}{self._type_name(each.input_type, scope)}"
            given = f"{'stream ' if each.server_streaming else ''}{self._type_name(each.output_type, scope)}"
            options = "".join(_indented(f"option {option};\n") for option in self._options(each))
            body = f" {{\n{options}}}" if options else ""
            methods.append(f"rpc {each.name} ({asked}) returns ({given}){body};\n")
        return _sections(f"service {service.name}", [[f"option {each};\n" for each in self._options(service)], methods])

    # Options.

    def _options(self, holder: Any, hidden: Iterable[str] = ()) -> list[str]:
        if not holder.HasField("options"):
            return []
        found = []
        for field, value in self._pool.decoded(holder.options).ListFields():
            if field.name in hidden:
                continue
            if field.name == "uninterpreted_option":
                found += [_as_written(each) for each in value]
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            for each in value if field.is_repeated and not _is_map(field) else [value]:
                found += self._assigned(name, field, each)
        return sorted(found) if self._normalize else found

    def _assigned(self, name: str, field: FieldDescriptor, value: Any) -> list[str]:
        if field.full_name.endswith("Options.features"):
            return [f"{name}.{inner.name} = {self._value(inner, each)}" for inner, each in value.ListFields()]
        return [f"{name} = {self._value(field, value)}"]

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        if field.message_type is not None:
            return "{\n" + _indented(",\n".join(self._members(value))) + "}" if value.ListFields() else "{\n}"
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return "true" if value else "false"
            case FieldDescriptor.CPPTYPE_ENUM:
                named = field.enum_type.values_by_number.get(value)
                return str(value) if named is None else str(named.name)
            case FieldDescriptor.CPPTYPE_STRING:
                return f'"{_escaped(value)}"'
        return str(value)

    def _members(self, message: Any) -> list[str]:
        found = []
        for field, value in message.ListFields():
            name = f"[{field.full_name}]" if field.is_extension else field.name
            if _is_map(field):
                key, inner = field.message_type.fields
                entries = [(self._value(key, each), self._value(inner, value[each])) for each in sorted(value)]
                members = [f"{{\n{_indented(f'key: {one},')}{_indented(f'value: {other}')}}}" for one, other in entries]
                found.append(f"{name}: {_listed(members)}")
            elif field.is_repeated:
                found.append(f"{name}: {_listed([self._value(field, each) for each in value])}")
            else:
                found.append(f"{name}: {self._value(field, value)}")
        return found

    def _bracketed(self, options: list[str]) -> str:
        if len(options) <= 1:
            return f" [{options[0]}]" if options else ""
        return " [\n" + _indented(",\n".join(options)) + "]"


def _listed(values: list[str]) -> str:
    return "[\n" + _indented(",\n".join(values)) + "]"


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _range(start: int, end: int, highest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == highest else end}"


def _escaped(text: str | bytes) -> str:
    if isinstance(text, bytes):
        return "".join(_escaped_code(byte) if byte < 127 else f"\\{byte:03o}" for byte in text)
    return "".join(_escaped_code(ord(letter)) for letter in text)


def _escaped_code(code: int) -> str:
    return _ESCAPES.get(code) or (chr(code) if code >= 32 and code != 127 else f"\\{code:03o}")


def _as_written(option: Any) -> str:
    """Return an option whose definition is not known."""
    parts = [f"({each.name_part})" if each.is_extension else each.name_part for each in option.name]
    name = ".".join(parts)
    for kind, value in ((field.name, value) for field, value in option.ListFields() if field.name != "name"):
        match kind:
            case "string_value":
                return f'{name} = "{_escaped(value)}"'
            case "aggregate_value":
                return f"{name} = {{ {value} }}"
        return f"{name} = {value}"
    return f"{name} = {{ }}"
