"""Avro's schema resolution: why a reader can not read what a writer wrote, and where.

Kinds and locations are those of the Java library's SchemaCompatibility. One rule is added: two decimals match only if
their precision and scale do, as the specification says.
"""

from __future__ import annotations

from typing import Final

from strandline.schemas.avro.nodes import AvroField, AvroNode
from strandline.schemas.types import Incompatibility

PAIRS_MAX: Final = 30_000
"""Pairs of schemas that one comparison looks at."""

_PROMOTIONS: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}

Found = list[Incompatibility]


class TooManyPairs(Exception):
    """The comparison looked at more pairs than it may."""


def incompatibilities(reader: AvroNode, writer: AvroNode) -> Found:
    """Return every reason why `reader` can not read what `writer` wrote."""
    try:
        return _Resolver().compare(reader, writer, "")
    except (TooManyPairs, RecursionError):
        message = f"The schemas are too large to compare: more than {PAIRS_MAX:,} pairs of types, or nested too deep"
        return [Incompatibility("TYPE_MISMATCH", "/", message)]


class _Resolver:
    """One comparison. Pairs that were seen are not compared again, so recursion ends and shared types cost nothing."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Found] = {}
        self._count = 0

    def compare(self, reader: AvroNode, writer: AvroNode, path: str) -> Found:
        pair = (id(reader), id(writer))
        known = self._seen.get(pair)
        if known is not None:
            # One reason is enough for a type that was explained where it came first.
            return known[:1]
        self._count += 1
        if self._count > PAIRS_MAX:
            raise TooManyPairs
        # Until it is known to be wrong, a recursive use of this pair counts as right.
        self._seen[pair] = []
        found = self._compare(reader, writer, path)
        self._seen[pair] = found
        return found

    def _compare(self, reader: AvroNode, writer: AvroNode, path: str) -> Found:
        if writer.kind == "union":
            return self._written_union(reader, writer, path)
        if reader.kind == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            message = f"The reader's union at path '{_shown(path)}' lacks the type {writer.label} of the writer"
            return [Incompatibility("MISSING_UNION_BRANCH", _shown(path), message)]
        if _family(reader) == _family(writer):
            return self._same_kind(reader, writer, path)
        if writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        message = (
            f"The type at path '{_shown(path)}' of the reader, {reader.label}, does not match that of the writer, "
            f"{writer.label}"
        )
        return [Incompatibility("TYPE_MISMATCH", _shown(path), message)]

    def _written_union(self, reader: AvroNode, writer: AvroNode, path: str) -> Found:
        found: Found = []
        for number, branch in enumerate(writer.branches):
            found += self.compare(reader, branch, f"{path}/{number}" if reader.kind == "union" else path)
        return found

    def _same_kind(self, reader: AvroNode, writer: AvroNode, path: str) -> Found:
        match reader.kind:
            case "array" | "map" as kind:
                assert reader.items is not None
                assert writer.items is not None
                return self.compare(reader.items, writer.items, f"{path}/{'items' if kind == 'array' else 'values'}")
            case "record" | "error":
                return _name_mismatch(reader, writer, path) + self._fields(reader, writer, path)
            case "enum":
                return _name_mismatch(reader, writer, path) + _missing_symbols(reader, writer, path)
            case "fixed":
                found = _name_mismatch(reader, writer, path) + _size_mismatch(reader, writer, path)
                return found + _decimal_mismatch(reader, writer, path)
        return _decimal_mismatch(reader, writer, path)

    def _fields(self, reader: AvroNode, writer: AvroNode, path: str) -> Found:
        found: Found = []
        written = {field.name: field for field in writer.fields}
        for number, field in enumerate(reader.fields):
            place = f"{path}/fields/{number}"
            source = _source_of(field, written)
            if source is not None:
                found += self.compare(field.type, source.type, f"{place}/type")
            elif not field.has_default and not (field.type.kind == "enum" and field.type.default_symbol is not None):
                message = (
                    f"The field '{field.name}' at path '{place}' of the reader has no default value and is missing "
                    "in the writer"
                )
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", place, message))
        return found


def _source_of(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _family(node: AvroNode) -> str:
    return "record" if node.kind == "error" else node.kind


def _name_mismatch(reader: AvroNode, writer: AvroNode, path: str) -> Found:
    # The unqualified names must match, or an alias of the reader names the writer.
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    message = f"The name of the type at path '{_shown(path)}' changed: {reader.name} reads what {writer.name} wrote"
    return [Incompatibility("NAME_MISMATCH", f"{path}/name", message)]


def _missing_symbols(reader: AvroNode, writer: AvroNode, path: str) -> Found:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default_symbol is not None:
        return []
    message = f"The reader's enum at path '{_shown(path)}' lacks the symbols {', '.join(missing[:20])} of the writer"
    return [Incompatibility("MISSING_ENUM_SYMBOLS", f"{path}/symbols", message)]


def _size_mismatch(reader: AvroNode, writer: AvroNode, path: str) -> Found:
    if reader.size == writer.size:
        return []
    message = f"The fixed at path '{_shown(path)}' has {reader.size} bytes in the reader, {writer.size} in the writer"
    return [Incompatibility("FIXED_SIZE_MISMATCH", f"{path}/size", message)]


def _decimal_mismatch(reader: AvroNode, writer: AvroNode, path: str) -> Found:
    if reader.decimal is None or writer.decimal is None or reader.decimal == writer.decimal:
        return []
    (precision, scale), (old_precision, old_scale) = reader.decimal, writer.decimal
    message = (
        f"The decimal at path '{_shown(path)}' has precision {precision} and scale {scale} in the reader, "
        f"{old_precision} and {old_scale} in the writer"
    )
    return [Incompatibility("TYPE_MISMATCH", _shown(path), message)]


def _shown(path: str) -> str:
    return path or "/"
