"""Avro's binary encoding to JSON values.

A schema becomes a function for each of its types, which takes the data and a place in it, and returns a value and the
next place. The library of the field, fastavro, follows a payload as deep and as long as it says: one that nests 10,000
records ends the process, and one with 2^60 items of no bytes never ends. Here both are failures.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.payloads.avro_logical import logical_of
from strandline.schemas.payloads.avro_unions import UnionShape, shape_of_value
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import read_long

WEIGHTLESS_MAX: Final = 100_000
"""Items of arrays in one payload that take no bytes, as nulls do. Others are limited by the size of the payload."""

Reader = Callable[[bytes, int], tuple[Any, int]]

_INT_LIMIT: Final = 2**31
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class AvroToJson:
    """Decodes payloads of one schema."""

    def __init__(self, node: AvroNode) -> None:
        self._node = node
        self._readers: dict[int, Reader] = {}
        self._weightless_left = [0]
        self._read = self._reader(node)

    def read(self, payload: bytes) -> Any:
        """Return the value of a payload. Raise PayloadFailed."""
        self._weightless_left[0] = WEIGHTLESS_MAX
        try:
            value, end = self._read(payload, 0)
        except RecursionError:
            raise PayloadFailed("it is nested too deep") from None
        except (IndexError, ValueError, struct.error) as error:
            raise _failure(error) from None
        if end != len(payload):
            raise PayloadFailed(f"{len(payload) - end:,} bytes are left behind the last field")
        return value

    def _reader(self, node: AvroNode) -> Reader:
        known = self._readers.get(id(node))
        if known is not None:
            return known
        if node.kind in ("record", "error"):
            return self._record(node)
        reader = self._made(node)
        logical = logical_of(node)
        if logical is not None:
            reader = _shown_by(logical.show, reader, of_bytes=node.kind in ("bytes", "fixed"))
        self._readers[id(node)] = reader
        return reader

    def _made(self, node: AvroNode) -> Reader:
        match node.kind:
            case "enum":
                return _enum(node)
            case "fixed":
                return _fixed(node.size)
            case "array":
                return self._array(node)
            case "map":
                return self._map(node)
            case "union":
                return self._union(node)
        return _PRIMITIVES[node.kind]

    def _record(self, node: AvroNode) -> Reader:
        fields: list[tuple[str, Reader]] = []

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found = {}
            name = ""
            try:
                for name, reader in fields:
                    found[name], at = reader(data, at)
            except (IndexError, ValueError, struct.error) as error:
                raise _failure(error).inside(name) from None
            return found, at

        # It is known before its fields are, because they may use it.
        self._readers[id(node)] = read
        fields += [(each.name, self._reader(each.type)) for each in node.fields]
        return read

    def _array(self, node: AvroNode) -> Reader:
        assert node.items is not None
        item = self._reader(node.items)
        left = self._weightless_left if _is_weightless(node.items, set()) else None

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found: list[Any] = []
            while True:
                count, at = _block(data, at)
                if not count:
                    return found, at
                if left is not None:
                    left[0] -= count
                    if left[0] < 0:
                        raise PayloadFailed(f"more than {WEIGHTLESS_MAX:,} items take no bytes")
                try:
                    for _ in range(count):
                        value, at = item(data, at)
                        found.append(value)
                except (IndexError, ValueError, struct.error) as error:
                    raise _failure(error).inside(len(found)) from None

        return read

    def _map(self, node: AvroNode) -> Reader:
        assert node.items is not None
        item = self._reader(node.items)

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found: dict[str, Any] = {}
            while True:
                count, at = _block(data, at)
                if not count:
                    return found, at
                for _ in range(count):
                    key, at = _string(data, at)
                    try:
                        found[key], at = item(data, at)
                    except (IndexError, ValueError, struct.error) as error:
                        raise _failure(error).inside(key) from None

        return read

    def _union(self, node: AvroNode) -> Reader:
        shape = UnionShape(node)
        readers = [self._reader(each) for each in node.branches]
        branches = list(zip(readers, shape.wrapped, shape.unlike, strict=True))

        def read(data: bytes, at: int) -> tuple[Any, int]:
            index, at = read_long(data, at)
            if not 0 <= index < len(branches):
                raise PayloadFailed(f"the union has no branch {index}")
            reader, label, unlike = branches[index]
            value, at = reader(data, at)
            if unlike is not None and shape_of_value(value) != unlike[0]:
                label = unlike[1]
            return (value if label is None else {label: value}), at

        return read


def _failure(error: Exception) -> PayloadFailed:
    match error:
        case PayloadFailed():
            return error
        case IndexError() | struct.error():
            return PayloadFailed("the payload ends too early")
        case UnicodeDecodeError():
            return PayloadFailed("a text is no UTF-8")
    return PayloadFailed(str(error))


def _is_weightless(node: AvroNode, seen: set[int]) -> bool:
    if id(node) in seen:
        return True
    seen.add(id(node))
    if node.kind in ("record", "error"):
        return all(_is_weightless(each.type, seen) for each in node.fields)
    return node.kind == "null" or (node.kind == "fixed" and node.size == 0)


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return how many items follow. A negative number has the size of the block behind it, which readers may skip."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at


def _shown_by(show: Callable[[Any], Any], reader: Reader, *, of_bytes: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = reader(data, at)
        return show(value.encode("latin-1") if of_bytes else value), at

    return read


def _enum(node: AvroNode) -> Reader:
    symbols = node.symbols

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(symbols):
            raise PayloadFailed(f"the enum {node.name} has no symbol {index}")
        return symbols[index], at

    return read


def _fixed(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(data):
            raise PayloadFailed("the payload ends too early")
        return data[at:end].decode("latin-1"), end

    return read


def _null(data: bytes, at: int) -> tuple[Any, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    if data[at] > 1:
        raise PayloadFailed(f"a boolean is {data[at]}, neither 0 nor 1")
    return data[at] == 1, at + 1


def _int(data: bytes, at: int) -> tuple[Any, int]:
    number, at = read_long(data, at)
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise PayloadFailed("an int has more than 32 bits")
    return number, at


def _float(data: bytes, at: int) -> tuple[Any, int]:
    return _number(_FLOAT.unpack_from(data, at)[0]), at + _FLOAT.size


def _double(data: bytes, at: int) -> tuple[Any, int]:
    return _number(_DOUBLE.unpack_from(data, at)[0]), at + _DOUBLE.size


def _number(value: float) -> float | str:
    """Return a number; JSON has no infinity, so that is a text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _slice(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise PayloadFailed("the payload ends too early")
    return data[at:end], end


def _bytes(data: bytes, at: int) -> tuple[Any, int]:
    found, at = _slice(data, at)
    return found.decode("latin-1"), at


def _string(data: bytes, at: int) -> tuple[Any, int]:
    found, at = _slice(data, at)
    return found.decode(), at


_PRIMITIVES: Final[dict[str, Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
