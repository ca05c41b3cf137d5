"""Resolve what a file imports and what its fields name, and check the result as Protobuf itself does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool

from strandline.schemas.protobuf.known_files import known_file
from strandline.schemas.types import REFERENCES_MAX, InvalidSchema

TypeOf = Any
"""A DescriptorProto or an EnumDescriptorProto; Protobuf has no types for mypy here."""
UNNAMED: Final = "schema.proto"
"""The name of a file that came as a text: the registry gives it none."""


@dataclass
class Linked:
    """A file whose types are resolved, and the files that it reaches, each after those that it imports."""

    file: FileDescriptorProto
    files: list[FileDescriptorProto]
    symbols: Symbols

    def pool(self, *extra: str) -> DescriptorPool:
        """Return a pool with all files, and the known files in `extra`. Options are left out of it."""
        pool = DescriptorPool()
        for each in self.files:
            pool.AddSerializedFile(each.SerializeToString())
        for name in extra:
            file = known_file(name)
            # A schema may hold a copy of a known file.
            if file is not None and not any(full in self.symbols.types for full, _ in types_of(file)):
                pool.AddSerializedFile(file.SerializeToString())
        return pool


@dataclass
class Symbols:
    """Messages, enums and packages by full name, and which file has each type."""

    types: dict[str, TypeOf] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    file_of: dict[str, FileDescriptorProto] = field(default_factory=dict)

    def add(self, file: FileDescriptorProto) -> None:
        parts = file.package.split(".") if file.package else []
        self.packages.update(".".join(parts[: n + 1]) for n in range(len(parts)))
        for name, each in types_of(file):
            # An equal name in two files is an error that the pool reports.
            self.types.setdefault(name, each)
            self.file_of.setdefault(name, file)

    def resolve(self, name: str, scope: str) -> str | None:
        """Return the full name of the type that `name` means inside `scope`, looked up from the inside outwards."""
        if name.startswith("."):
            return name[1:] if name[1:] in self.types else None
        while True:
            full = f"{scope}.{name}" if scope else name
            if full in self.types:
                return full
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def shortest(self, full: str, scope: str) -> str:
        """Return the shortest name that means the type `full` inside `scope`."""
        parts = full.split(".")
        package = self.file_of[full].package
        if package and not f"{scope}.".startswith(f"{package}.") and self._means(parts, len(parts), scope):
            # A type of another package is commonly written in full.
            return full
        for length in range(1, len(parts) + 1):
            if self._means(parts, length, scope):
                return ".".join(parts[-length:])
        return f".{full}"

    def _means(self, parts: list[str], length: int, scope: str) -> bool:
        """Tell whether the last `length` parts of a full name mean the type inside `scope`, for every reader."""
        if self.resolve(".".join(parts[-length:]), scope) != ".".join(parts):
            return False
        return length == 1 or not self._is_hidden(parts[-length], ".".join(parts[:-length]), scope)

    def _is_hidden(self, first: str, home: str, scope: str) -> bool:
        """Tell whether the first part of a name means something else on the way outwards to `home`."""
        while scope != home:
            inner = f"{scope}.{first}"
            if inner in self.types or inner in self.packages:
                return True
            scope = scope.rpartition(".")[0]
        return False


def types_of(file: FileDescriptorProto) -> Iterator[tuple[str, TypeOf]]:
    """Yield the messages and enums of a file with their full names."""
    prefix = f"{file.package}." if file.package else ""
    for enum in file.enum_type:
        yield f"{prefix}{enum.name}", enum
    waiting = [(f"{prefix}{each.name}", each) for each in reversed(file.message_type)]
    while waiting:
        name, message = waiting.pop()
        yield name, message
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)
        waiting += [(f"{name}.{each.name}", each) for each in message.nested_type]


def link(file: FileDescriptorProto, references: Mapping[str, FileDescriptorProto]) -> Linked:
    """Link a file with the files that it imports, or raise InvalidSchema."""
    copied = FileDescriptorProto()
    copied.CopyFrom(file)
    files = _in_order(copied, references)
    symbols = Symbols()
    for each in files:
        symbols.add(each)
        _resolve(each, symbols)
    linked = Linked(copied, files, symbols)
    _check(linked)
    return linked


def _in_order(root: FileDescriptorProto, references: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return `root` and all that it imports, each after its own imports. Imports can be deep."""
    ordered: list[FileDescriptorProto] = []
    done: set[str] = set()
    waiting: list[tuple[FileDescriptorProto, bool]] = [(root, False)]
    under_way: set[str] = set()
    while waiting:
        file, is_finished = waiting.pop()
        if is_finished:
            under_way.discard(file.name)
            done.add(file.name)
            ordered.append(file)
            continue
        if file.name in done:
            continue
        if file.name in under_way:
            raise InvalidSchema(f"The file {file.name!r} imports itself.")
        under_way.add(file.name)
        waiting.append((file, True))
        if len(under_way) + len(done) > REFERENCES_MAX:
            raise InvalidSchema(f"The schema reaches more than {REFERENCES_MAX} files through imports.")
        for name in reversed(list(file.dependency)):
            if name in under_way:
                raise InvalidSchema(f"The file {name!r} imports itself.")
            if name not in done:
                waiting.append((_imported(name, references), False))
    return ordered


def _imported(name: str, references: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    found = references.get(name)
    if found is None:
        found = known_file(name)
    if found is None:
        raise InvalidSchema(f"The import {name!r} is neither among the references nor a well-known file.")
    copied = FileDescriptorProto()
    copied.CopyFrom(found)
    copied.name = name
    return copied


def _resolve(file: FileDescriptorProto, symbols: Symbols) -> None:
    for name, message in types_of(file):
        if isinstance(message, DescriptorProto):
            for each in message.field:
                _resolve_field(each, name, symbols)
            for each in message.extension:
                _resolve_field(each, name, symbols)
    for each in file.extension:
        _resolve_field(each, file.package, symbols)
    for service in file.service:
        for method in service.method:
            method.input_type = _resolved(method.input_type, file.package, symbols, method.name)
            method.output_type = _resolved(method.output_type, file.package, symbols, method.name)


def _resolve_field(each: FieldDescriptorProto, scope: str, symbols: Symbols) -> None:
    if each.json_name == default_json_name(each.name):
        each.ClearField("json_name")
    if each.extendee:
        each.extendee = _resolved(each.extendee, scope, symbols, each.name)
    if not each.type_name:
        return
    each.type_name = _resolved(each.type_name, scope, symbols, each.name)
    if each.type != FieldDescriptorProto.TYPE_GROUP:
        is_enum = isinstance(symbols.types[each.type_name[1:]], EnumDescriptorProto)
        each.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE


def _resolved(name: str, scope: str, symbols: Symbols, user: str) -> str:
    found = symbols.resolve(name, scope)
    if found is None:
        raise InvalidSchema(f"{user!r} has the type {name[:80]!r}, which no message or enum has here or in an import.")
    return f".{found}"


def default_json_name(name: str) -> str:
    """Return the name of a field in JSON if no option says otherwise."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _check(linked: Linked) -> None:
    """Let Protobuf's own library check numbers, names, reserved ranges and defaults."""
    for name, each in types_of(linked.file):
        if isinstance(each, DescriptorProto):
            _check_reserved(name, each)
        elif not each.value:
            raise InvalidSchema(f"The enum {name!r} has no values.")
    try:
        linked.pool()
    except (TypeError, ValueError) as error:
        reason = str(error).partition("pool: ")[2] or str(error)
        raise InvalidSchema(f"Protobuf rejects the schema: {reason[:200].rstrip('.')}.") from None


def _check_reserved(name: str, message: DescriptorProto) -> None:
    numbers: set[int] = set()
    for each in message.field:
        if each.number in numbers:
            raise InvalidSchema(f"The message {name!r} has the field number {each.number} twice.")
        numbers.add(each.number)
        if each.name in message.reserved_name or any(r.start <= each.number < r.end for r in message.reserved_range):
            raise InvalidSchema(f"The field {each.name!r} of {name!r} has a name or number that is reserved.")
