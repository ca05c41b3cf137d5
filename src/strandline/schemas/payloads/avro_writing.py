"""JSON values to Avro's binary encoding.

A record must have every field that has no default, and no others. Bytes are text with a character for each byte, as in
Avro's JSON encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

from strandline.schemas.avro.defaults import is_default_of
from strandline.schemas.avro.nodes import AvroField, AvroNode
from strandline.schemas.payloads.avro_logical import logical_of
from strandline.schemas.payloads.avro_unions import UnionShape, shown
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import write_long

Writer = Callable[[Any, bytearray], None]

_LIMITS: Final = {"int": 2**31, "long": 2**63}
_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class JsonToAvro:
    """Encodes values of one schema. `of_defaults`: values are defaults of the schema, which are written otherwise."""

    def __init__(self, node: AvroNode, *, of_defaults: bool = False) -> None:
        self._node = node
        self._of_defaults = of_defaults
        self._writers: dict[int, Writer] = {}
        self._write = self._writer(node)

    def write(self, value: Any) -> bytes:
        """Return the payload of a value. Raise PayloadFailed."""
        out = bytearray()
        try:
            self._write(value, out)
        except RecursionError:
            raise PayloadFailed("it is nested too deep") from None
        return bytes(out)

    def _writer(self, node: AvroNode) -> Writer:
        known = self._writers.get(id(node))
        if known is not None:
            return known
        if node.kind in ("record", "error"):
            return self._record(node)
        writer = self._made(node)
        logical = None if self._of_defaults else logical_of(node)
        if logical is not None:
            writer = _read_by(logical.read, writer, node)
        self._writers[id(node)] = writer
        return writer

    def _made(self, node: AvroNode) -> Writer:
        match node.kind:
            case "int" | "long":
                return _whole(node.kind)
            case "float" | "double":
                return _floating(node.kind)
            case "bytes" | "fixed":
                return _raw(node)
            case "enum":
                return _enum(node)
            case "array":
                return self._array(node)
            case "map":
                return self._map(node)
            case "union":
                return self._default_union(node) if self._of_defaults else self._union(node)
        return {"null": _null, "boolean": _boolean, "string": _string}[node.kind]

    def _record(self, node: AvroNode) -> Writer:
        fields: list[tuple[AvroField, Writer]] = []
        names = {each.name for each in node.fields}
        defaults: dict[str, bytes] = {}

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise PayloadFailed(f"{shown(value)} is no {node.name}")
            for name in value:
                if name not in names:
                    nearest = get_close_matches(name, names, n=1)
                    meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
                    raise PayloadFailed(f"{node.name} has no field {name[:60]!r}{meant}")
            for field, writer in fields:
                if field.name in value:
                    try:
                        writer(value[field.name], out)
                    except PayloadFailed as failure:
                        raise failure.inside(field.name) from None
                elif not field.has_default:
                    raise PayloadFailed(f"the field {field.name!r} of {node.name} is missing, and has no default")
                else:
                    if field.name not in defaults:
                        defaults[field.name] = JsonToAvro(field.type, of_defaults=True).write(field.default)
                    out += defaults[field.name]

        # It is known before its fields are, because they may use it.
        self._writers[id(node)] = write
        fields += [(each, self._writer(each.type)) for each in node.fields]
        return write

    def _array(self, node: AvroNode) -> Writer:
        assert node.items is not None
        item = self._writer(node.items)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, list):
                raise PayloadFailed(f"{shown(value)} is no array")
            if value:
                write_long(len(value), out)
                for index, each in enumerate(value):
                    try:
                        item(each, out)
                    except PayloadFailed as failure:
                        raise failure.inside(index) from None
            out.append(0)

        return write

    def _map(self, node: AvroNode) -> Writer:
        assert node.items is not None
        item = self._writer(node.items)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise PayloadFailed(f"{shown(value)} is no map")
            if value:
                write_long(len(value), out)
                for key, each in value.items():
                    try:
                        _string(key, out)
                        item(each, out)
                    except PayloadFailed as failure:
                        raise failure.inside(key) from None
            out.append(0)

        return write

    def _union(self, node: AvroNode) -> Writer:
        branches = [self._writer(each) for each in node.branches]
        shape = UnionShape(node)

        def write(value: Any, out: bytearray) -> None:
            index, inner = shape.choose(value)
            write_long(index, out)
            branches[index](inner, out)

        return write

    def _default_union(self, node: AvroNode) -> Writer:
        """Return a writer of defaults: the first branch that one fits, for it is never written with a name."""

        def write(value: Any, out: bytearray) -> None:
            index = next(n for n, each in enumerate(node.branches) if is_default_of(value, each))
            write_long(index, out)
            self._writer(node.branches[index])(value, out)

        return write


def _read_by(read: Callable[[Any], Any], writer: Writer, node: AvroNode) -> Writer:
    name = node.properties["logicalType"]
    of_bytes = node.kind in ("bytes", "fixed")

    def write(value: Any, out: bytearray) -> None:
        try:
            stored = read(value)
        except ValueError as error:
            raise PayloadFailed(f"{shown(value)} is no {name}: {error}") from None
        writer(stored.decode("latin-1") if of_bytes else stored, out)

    return write


def _null(value: Any, out: bytearray) -> None:
    if value is not None:
        raise PayloadFailed(f"{shown(value)} is not null")


def _boolean(value: Any, out: bytearray) -> None:
    if not isinstance(value, bool):
        raise PayloadFailed(f"{shown(value)} is no boolean")
    out.append(value)


def _whole(kind: str) -> Writer:
    limit = _LIMITS[kind]

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise PayloadFailed(f"{shown(value)} is no {kind}")
        if not -limit <= value < limit:
            raise PayloadFailed(f"{shown(value)} is too large for {kind}")
        write_long(value, out)

    return write


def _floating(kind: str) -> Writer:
    layout = _FLOATS[kind]

    def write(value: Any, out: bytearray) -> None:
        number = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise PayloadFailed(f"{shown(value)} is no {kind}")
        try:
            out += layout.pack(number)
        except OverflowError:
            raise PayloadFailed(f"{shown(value)} is too large for {kind}") from None

    return write


def _raw(node: AvroNode) -> Writer:
    size = node.size if node.kind == "fixed" else None

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str):
            raise PayloadFailed(f"{shown(value)} is no {node.label}: write a text with a character for each byte")
        try:
            content = value.encode("latin-1")
        except UnicodeEncodeError:
            raise PayloadFailed("a character of the text is no byte: they go from U+0000 to U+00FF") from None
        if size is None:
            write_long(len(content), out)
        elif len(content) != size:
            raise PayloadFailed(f"{node.name} has {size} bytes, not {len(content)}")
        out += content

    return write


def _enum(node: AvroNode) -> Writer:
    places = {symbol: index for index, symbol in enumerate(node.symbols)}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str) or value not in places:
            some = ", ".join(node.symbols[:20])
            raise PayloadFailed(f"{shown(value)} is no symbol of {node.name}: it has {some}")
        write_long(places[value], out)

    return write


def _string(value: Any, out: bytearray) -> None:
    if not isinstance(value, str):
        raise PayloadFailed(f"{shown(value)} is no string")
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise PayloadFailed("a text has half of a surrogate pair, which no UTF-8 can hold") from None
    write_long(len(content), out)
    out += content
