"""Differences between two Protobuf files, by field number, named as Confluent's registry names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from strandline.schemas.protobuf.linking import Linked
from strandline.schemas.types import SchemaChange

COMPATIBLE: Final = frozenset(
    {
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    }
)
_SENTENCES: Final = {
    "PACKAGE_CHANGED": "the package was {old} and is {new} now",
    "MESSAGE_REMOVED": "the message {last} was removed",
    "FIELD_KIND_CHANGED": "the field {field} was {old} and is {new} now, which is encoded differently",
    "FIELD_SCALAR_KIND_CHANGED": "the field {field} was {old} and is {new} now, which is encoded differently",
    "FIELD_NAMED_TYPE_CHANGED": "the field {field} had the message {old} and has {new} now, which can not read it",
    "FIELD_NUMERIC_LABEL_CHANGED": "the field {field} was {old} and is {new} now, which is encoded differently",
    "REQUIRED_FIELD_ADDED": "the field {field} is required now, and old data may lack it",
    "REQUIRED_FIELD_REMOVED": "the required field {field} was removed",
    "ONEOF_FIELD_REMOVED": "the field {field} was removed from its oneof",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "several fields were moved into the oneof {last}, which keeps only one of them",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field was moved into the oneof {last}, which others are in already",
}
_T: Final = FieldDescriptorProto
_SCALAR_KINDS: Final = {
    **dict.fromkeys(
        (_T.TYPE_INT32, _T.TYPE_INT64, _T.TYPE_UINT32, _T.TYPE_UINT64, _T.TYPE_BOOL, _T.TYPE_ENUM), "varint"
    ),
    **dict.fromkeys((_T.TYPE_SINT32, _T.TYPE_SINT64), "zigzag"),
    **dict.fromkeys((_T.TYPE_STRING, _T.TYPE_BYTES), "bytes"),
    **dict.fromkeys((_T.TYPE_FIXED32, _T.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_T.TYPE_FIXED64, _T.TYPE_SFIXED64), "fixed64"),
    _T.TYPE_FLOAT: "float",
    _T.TYPE_DOUBLE: "double",
}
_LABELS: Final = {1: "singular", 2: "required", 3: "repeated"}


@dataclass(frozen=True)
class FieldDifference(SchemaChange):
    """One difference between an old and a new file."""

    field: str = ""

    @property
    def is_compatible(self) -> bool:
        return self.kind in COMPATIBLE

    def sentence(self) -> str:
        """Return what changed, for a person."""
        words = _SENTENCES.get(self.kind) or self.kind.lower().replace("_", " ") + " at {place}"
        last = repr(self.path[-1]) if self.path else "#"
        named = f"{self.field!r} at {self.place}"
        text = words.format(place=self.place, last=last, old=self.old, new=self.new, field=named)
        return f"{text[0].upper()}{text[1:]}."


def compare(old: Linked, new: Linked) -> list[FieldDifference]:
    """Return the differences between two files, compatible ones included."""
    found = []
    if old.file.package != new.file.package:
        found.append(FieldDifference("PACKAGE_CHANGED", (), repr(old.file.package), repr(new.file.package)))
    return found + _Comparison(old, new).run()


class _Comparison:
    """The comparison of two files. Messages of imported files are compared where a field names them."""

    def __init__(self, old: Linked, new: Linked) -> None:
        self._old = old
        self._new = new
        # Pairs of messages by full name: those compared, and those whose differences are not compatible.
        self._seen: dict[tuple[str, str], list[FieldDifference]] = {}
        self._waiting: list[tuple[str, str]] = []
        self._uses: list[tuple[tuple[str, str], FieldDifference]] = []

    def run(self) -> list[FieldDifference]:
        old, new = self._old.file, self._new.file
        found = self._types(
            (old.message_type, old.enum_type), (new.message_type, new.enum_type), (), (old.package, new.package)
        )
        while self._waiting:
            pair = self._waiting.pop()
            before, after = self._old.symbols.types[pair[0]], self._new.symbols.types[pair[1]]
            path = tuple(_local(pair[0], self._old).split("."))
            self._seen[pair] = self._message(before, after, path, pair)
            found += self._seen[pair]
        return found + self._broken_uses()

    def _broken_uses(self) -> list[FieldDifference]:
        """Return the fields whose imported message can not be read."""
        broken = {pair for pair, each in self._seen.items() if not all(one.is_compatible for one in each)}
        return [difference for pair, difference in self._uses if pair in broken]

    def _types(
        self,
        old: tuple[Iterable[DescriptorProto], Iterable[EnumDescriptorProto]],
        new: tuple[Iterable[DescriptorProto], Iterable[EnumDescriptorProto]],
        path: tuple[str, ...],
        scopes: tuple[str, str],
    ) -> list[FieldDifference]:
        found: list[FieldDifference] = []
        before = {each.name: (n, each) for n, each in enumerate(_messages(old[0]))}
        after = {each.name: (n, each) for n, each in enumerate(_messages(new[0]))}
        for name in dict.fromkeys([*before, *after]):
            inner = (*path, name)
            if name not in after:
                found.append(FieldDifference("MESSAGE_REMOVED", inner))
            elif name not in before:
                found.append(FieldDifference("MESSAGE_ADDED", inner))
            else:
                names = tuple(f"{scope}.{name}" if scope else name for scope in scopes)
                found += self._message(before[name][1], after[name][1], inner, (names[0], names[1]))
                if before[name][0] != after[name][0]:
                    found.append(FieldDifference("MESSAGE_MOVED", inner))
        enums, others = ({each.name: each for each in side} for side in (old[1], new[1]))
        for name in dict.fromkeys([*enums, *others]):
            inner = (*path, name)
            if name not in others:
                found.append(FieldDifference("ENUM_REMOVED", inner))
            elif name not in enums:
                found.append(FieldDifference("ENUM_ADDED", inner))
            else:
                found += _enum(enums[name], others[name], inner)
        return found

    def _message(
        self, old: DescriptorProto, new: DescriptorProto, path: tuple[str, ...], names: tuple[str, str]
    ) -> list[FieldDifference]:
        before, after = _Fields(old), _Fields(new)
        found = _oneofs(before, after, path)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            found += self._numbered(before, after, number, path)
        found += self._types((old.nested_type, old.enum_type), (new.nested_type, new.enum_type), path, names)
        return found

    def _numbered(self, old: _Fields, new: _Fields, number: int, path: tuple[str, ...]) -> list[FieldDifference]:
        before, after = old.by_number.get(number), new.by_number.get(number)
        was_in, is_in = old.oneof_of.get(number), new.oneof_of.get(number)
        oneof = is_in or (was_in if after is None else None)
        place = (*path, oneof, str(number)) if oneof else (*path, str(number))
        if after is None:
            assert before is not None
            if was_in is not None:
                # A oneof that went with all its fields loses no more than a field that went.
                return (
                    []
                    if was_in in old.deleted_by(new)
                    else [FieldDifference("ONEOF_FIELD_REMOVED", place, field=before.name)]
                )
            kind = "REQUIRED_FIELD_REMOVED" if before.label == _T.LABEL_REQUIRED else "FIELD_REMOVED"
            return [FieldDifference(kind, place, field=before.name)]
        if before is None:
            if is_in is not None:
                return [FieldDifference("ONEOF_FIELD_ADDED", place, field=after.name)]
            kind = "REQUIRED_FIELD_ADDED" if after.label == _T.LABEL_REQUIRED else "FIELD_ADDED"
            return [FieldDifference(kind, place, field=after.name)]
        found = []
        if was_in is not None and is_in is None:
            found.append(FieldDifference("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", place, field=after.name))
        return found + self._field(before, after, place)

    def _field(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: tuple[str, ...]
    ) -> list[FieldDifference]:
        found = []
        if old.name != new.name:
            found.append(FieldDifference("FIELD_NAME_CHANGED", path, old.name, new.name, new.name))
        if new.label == _T.LABEL_REQUIRED and old.label != _T.LABEL_REQUIRED:
            found.append(FieldDifference("REQUIRED_FIELD_ADDED", path, field=new.name))
        return found + self._type(old, new, path, new.name, has_label=True)

    def _type(
        self,
        old: FieldDescriptorProto,
        new: FieldDescriptorProto,
        path: tuple[str, ...],
        name: str,
        *,
        has_label: bool,
    ) -> list[FieldDifference]:
        old_map, new_map = _map_entry(old, self._old), _map_entry(new, self._new)
        before, after = _kind(old, old_map), _kind(new, new_map)
        shown = (_shown(old, old_map), _shown(new, new_map))
        if before != after:
            return [FieldDifference("FIELD_KIND_CHANGED", path, *shown, name)]
        if old_map is not None and new_map is not None:
            found = self._type(old_map.field[0], new_map.field[0], path, name, has_label=False)
            return found + self._type(old_map.field[1], new_map.field[1], path, name, has_label=False)
        if before != "scalar":
            return self._named(old, new, path, name)
        kind = _SCALAR_KINDS[old.type]
        if kind != _SCALAR_KINDS[new.type]:
            return [FieldDifference("FIELD_SCALAR_KIND_CHANGED", path, *shown, name)]
        if not has_label or (old.label == _T.LABEL_REPEATED) == (new.label == _T.LABEL_REPEATED):
            return []
        label = "FIELD_STRING_OR_BYTES_LABEL_CHANGED" if kind == "bytes" else "FIELD_NUMERIC_LABEL_CHANGED"
        return [FieldDifference(label, path, _LABELS[old.label], _LABELS[new.label], name)]

    def _named(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: tuple[str, ...], name: str
    ) -> list[FieldDifference]:
        pair = (old.type_name[1:], new.type_name[1:])
        before, after = _local(pair[0], self._old), _local(pair[1], self._new)
        changed = FieldDifference("FIELD_NAMED_TYPE_CHANGED", path, before, after, name)
        if before != after:
            return [changed]
        are_own = [
            side.symbols.file_of[full] is side.file for side, full in zip((self._old, self._new), pair, strict=True)
        ]
        if all(are_own):
            return []
        if pair not in self._seen:
            self._seen[pair] = []
            self._waiting.append(pair)
        self._uses.append((pair, changed))
        return []


class _Fields:
    """The fields of a message by number, and the oneof that each is in. A proto3 optional is in none."""

    def __init__(self, message: DescriptorProto) -> None:
        self.by_number = {each.number: each for each in message.field}
        self.oneof_of = {
            each.number: message.oneof_decl[each.oneof_index].name
            for each in message.field
            if each.HasField("oneof_index") and not each.proto3_optional
        }
        self.oneofs: dict[str, list[int]] = {}
        for number, name in self.oneof_of.items():
            self.oneofs.setdefault(name, []).append(number)

    def deleted_by(self, new: _Fields) -> set[str]:
        """Return the oneofs of which `new` has neither the name nor a field."""
        return {
            name
            for name, numbers in self.oneofs.items()
            if name not in new.oneofs and not any(number in new.by_number for number in numbers)
        }


def _oneofs(old: _Fields, new: _Fields, path: tuple[str, ...]) -> list[FieldDifference]:
    found = []
    for name, numbers in new.oneofs.items():
        # Fields that could be set together, and now can not.
        known = [number for number in numbers if number in old.by_number]
        groups = {old.oneof_of.get(number, number) for number in known}
        if len(groups) > 1:
            moved = sum(number not in old.oneof_of for number in known)
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            found.append(FieldDifference(kind, (*path, name)))
    for name in sorted(old.oneofs.keys() ^ new.oneofs.keys()):
        found.append(FieldDifference("ONEOF_REMOVED" if name in old.oneofs else "ONEOF_ADDED", (*path, name)))
    return found


def _enum(old: EnumDescriptorProto, new: EnumDescriptorProto, path: tuple[str, ...]) -> list[FieldDifference]:
    before, after = ({each.number: each.name for each in side.value} for side in (old, new))
    found = []
    for number in sorted(before.keys() | after.keys()):
        place = (*path, str(number))
        if number not in after:
            found.append(FieldDifference("ENUM_CONST_REMOVED", place))
        elif number not in before:
            found.append(FieldDifference("ENUM_CONST_ADDED", place))
        elif before[number] != after[number]:
            found.append(FieldDifference("ENUM_CONST_CHANGED", place))
    return found


def _messages(messages: Iterable[DescriptorProto]) -> list[DescriptorProto]:
    return [each for each in messages if not each.options.map_entry]


def _map_entry(field: FieldDescriptorProto, linked: Linked) -> DescriptorProto | None:
    named = linked.symbols.types.get(field.type_name[1:])
    return named if isinstance(named, DescriptorProto) and named.options.map_entry else None


def _kind(field: FieldDescriptorProto, entry: DescriptorProto | None) -> str:
    if entry is not None:
        return "map"
    if field.type in _SCALAR_KINDS:
        return "scalar"
    return "group" if field.type == _T.TYPE_GROUP else "message"


def _shown(field: FieldDescriptorProto, entry: DescriptorProto | None) -> str:
    if entry is not None:
        return f"map<{_shown(entry.field[0], None)}, {_shown(entry.field[1], None)}>"
    return str(field.type_name[1:]) or str(_T.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _local(full: str, linked: Linked) -> str:
    package = linked.symbols.file_of[full].package
    return full.removeprefix(f"{package}.") if package else full
