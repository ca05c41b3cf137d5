"""Repairs of Protobuf schemas. They change the descriptor, whose print is then parsed with the references again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from strandline.schemas.evolve.repairs import Reason, Repair
from strandline.schemas.protobuf.engine import read_file, serialized

_TYPE_CHANGES: Final = frozenset(
    {"FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED", "FIELD_NUMERIC_LABEL_CHANGED"}
)


def protobuf_repairs(old_text: str, new_text: str, reason: Reason) -> Iterator[Repair]:
    """Yield repairs for one reason."""
    old, new = read_file(old_text), read_file(new_text)
    kind = reason.incompatibility.kind
    path = [part for part in reason.incompatibility.path.removeprefix("#/").split("/") if part]
    if kind == "PACKAGE_CHANGED":
        new.package = old.package
        yield Repair(serialized(new), f"Keep the package {old.package!r}.")
        return
    if kind == "MESSAGE_REMOVED":
        yield from _message_kept(old if reason.is_backward else new, old, new, path, reason.is_backward)
        return
    number = int(path[-1]) if path[-1:] and path[-1].isdecimal() else None
    before, after = _message_at(old, path), _message_at(new, path)
    if before is None or after is None:
        return
    if number is None:
        yield from _out_of_oneof(new, before, after, path[-1])
        return
    was, now = (_field_at(message, number) for message in (before, after))
    if kind in _TYPE_CHANGES and was is not None and now is not None:
        yield from _renumbered(new, before, after, was, now)
    if was is not None:
        yield from _field_kept(new, before, after, was, now)
    elif now is not None and now.label == FieldDescriptorProto.LABEL_REQUIRED:
        now.label = FieldDescriptorProto.LABEL_OPTIONAL
        yield Repair(serialized(new), f"Make the field {now.name!r} optional.")


def _message_kept(
    source: FileDescriptorProto, old: FileDescriptorProto, new: FileDescriptorProto, path: list[str], is_backward: bool
) -> Iterator[Repair]:
    holder, origin = (_message_at(each, path[:-1]) if path[:-1] else each for each in (new, old))
    if holder is None or origin is None:
        return
    messages = holder.message_type if isinstance(holder, FileDescriptorProto) else holder.nested_type
    if not is_backward:
        kept = [each for each in messages if each.name != path[-1]]
        del messages[:]
        messages.extend(kept)
        yield Repair(serialized(new), f"Leave out the message {path[-1]!r}, which old readers do not have.")
        return
    candidates = origin.message_type if isinstance(origin, FileDescriptorProto) else origin.nested_type
    messages.extend(each for each in candidates if each.name == path[-1])
    yield Repair(serialized(new), f"Keep the message {path[-1]!r}.")


def _renumbered(
    file: FileDescriptorProto,
    before: DescriptorProto,
    after: DescriptorProto,
    was: FieldDescriptorProto,
    now: FieldDescriptorProto,
) -> Iterator[Repair]:
    """Give the new type a new number, so that the old number keeps its type."""
    snapshot = DescriptorProto()
    snapshot.CopyFrom(after)
    number = 1 + max(each.number for each in (*before.field, *after.field))
    reserved = [(each.start, each.end) for each in after.reserved_range]
    if (
        was.HasField("oneof_index")
        or now.HasField("oneof_index")
        or any(low <= number < high for low, high in reserved)
    ):
        return
    old_number, now.number = now.number, number
    after.reserved_range.add(start=old_number, end=old_number + 1)
    step = f"Give the field {now.name!r} the new number {number}, and reserve {old_number}."
    yield Repair(serialized(file), step)
    after.CopyFrom(snapshot)


def _field_kept(
    file: FileDescriptorProto,
    before: DescriptorProto,
    after: DescriptorProto,
    was: FieldDescriptorProto,
    now: FieldDescriptorProto | None,
) -> Iterator[Repair]:
    target = after.field.add() if now is None else _field_at(after, was.number)
    assert target is not None
    oneof = (
        target.oneof_index if now is not None and target.HasField("oneof_index") else _oneof_like(before, after, was)
    )
    target.CopyFrom(was)
    target.ClearField("oneof_index")
    if oneof is not None:
        target.oneof_index = oneof
    after.nested_type.extend(
        each
        for each in before.nested_type
        if each.options.map_entry
        and each.name == was.type_name
        and each.name not in {n.name for n in after.nested_type}
    )
    verb = "Keep the field" if now is None else "Keep the type and label of the field"
    yield Repair(serialized(file), f"{verb} {was.name!r} (number {was.number}).")


def _oneof_like(before: DescriptorProto, after: DescriptorProto, field: FieldDescriptorProto) -> int | None:
    if not field.HasField("oneof_index"):
        return None
    name = before.oneof_decl[field.oneof_index].name
    return next((n for n, each in enumerate(after.oneof_decl) if each.name == name), None)


def _out_of_oneof(
    file: FileDescriptorProto, before: DescriptorProto, after: DescriptorProto, name: str
) -> Iterator[Repair]:
    inside = {each.number for each in before.field if each.HasField("oneof_index") and not each.proto3_optional}
    known = {each.number for each in before.field}
    moved = [
        each
        for each in after.field
        if each.HasField("oneof_index")
        and after.oneof_decl[each.oneof_index].name == name
        and each.number in known - inside
    ]
    for each in moved:
        each.ClearField("oneof_index")
    _drop_empty_oneofs(after)
    if moved:
        names = ", ".join(repr(each.name) for each in moved)
        yield Repair(serialized(file), f"Leave {names} outside the oneof {name!r}.")


def _drop_empty_oneofs(message: DescriptorProto) -> None:
    used = sorted({each.oneof_index for each in message.field if each.HasField("oneof_index")})
    kept = [message.oneof_decl[n].name for n in used]
    for each in message.field:
        if each.HasField("oneof_index"):
            each.oneof_index = used.index(each.oneof_index)
    del message.oneof_decl[:]
    for name in kept:
        message.oneof_decl.add(name=name)


def _message_at(file: FileDescriptorProto, path: list[str]) -> DescriptorProto | None:
    """Return the innermost message that a path names; the rest of the path may be a oneof and a number."""
    found: Any = None
    inside: Callable[[], Any] = lambda: file.message_type if found is None else found.nested_type  # noqa: E731
    for name in path:
        inner = next((each for each in inside() if each.name == name), None)
        if inner is None:
            break
        found = inner
    return found


def _field_at(message: DescriptorProto, number: int) -> FieldDescriptorProto | None:
    return next((each for each in message.field if each.number == number), None)
