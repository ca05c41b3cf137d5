"""Which tables and columns are captured, what their keys are, and which values are masked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.cdc.expressions import NamePatterns, wrong_expressions
from strandline.cdc.model import CapturedColumn, SourceType
from strandline.cdc.settings import KEY_COLUMNS_PATTERN, CdcConfig
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.schema import ConnectType, Schema

_MASK: Final = re.compile(r"column\.mask\.with\.(\d+)\.chars", re.ASCII)
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)", re.ASCII)
_TRUNCATE: Final = re.compile(r"column\.truncate\.to\.(\d+)\.chars", re.ASCII)
_JAVA_STRING_MAX: Final = 0xFFFF
_LENGTH_MAX: Final = 2**31 - 1
_SOURCE_COLUMN: Final = "__debezium.source.column"

Convert = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class MaskedColumn(CapturedColumn):
    """A column whose values are masked or cut, or whose type is told. Keys have the plain one, as Debezium's do."""

    plain: CapturedColumn | None = None
    null: Any = None
    """The field's value for NULL."""


@dataclass(frozen=True, eq=False)
class KeyOnlyColumn(CapturedColumn):
    """A column of the key that is left out of rows."""


@dataclass(frozen=True)
class _Masking:
    """One setting that changes values: a mask, a hash or a cut."""

    setting: str
    patterns: NamePatterns
    parameters: Mapping[str, str]
    is_mask: bool
    apply: Convert
    constant: str | None = None
    """What every value becomes, if it is always the same."""


class TableSelection:
    """What a config's lists say of tables and columns. A table's full name is that of `CapturedTable.full_name`."""

    def __init__(self, config: CdcConfig) -> None:
        """Raise InvalidConnectorConfig if a setting whose name has a variable part is wrong."""
        self._tables = _Lists(config.table_include_list, config.table_exclude_list)
        self._columns = _Lists(config.column_include_list, config.column_exclude_list)
        self._keys = list(_key_entries(config.message_key_columns or ""))
        self._maskings = list(_maskings(config.properties))
        self._propagated = (
            NamePatterns(config.column_propagate_source_type),
            NamePatterns(config.datatype_propagate_source_type),
        )

    def has_table(self, full_name: str) -> bool:
        """Return whether a table is captured."""
        return self._tables.has(full_name)

    def has_column(self, full_name: str, column: str) -> bool:
        """Return whether rows have a column."""
        return self._columns.has(f"{full_name}.{column}")

    def key_columns(self, full_name: str, columns: Sequence[str] | None = None) -> tuple[str, ...] | None:
        """Return the columns that `message.key.columns` names for a table; None if it names none.

        With the table's `columns` these are names of its columns, which an entry may give as regular expressions.
        """
        named = [each for patterns, names in self._keys if patterns.matches(full_name) for each in names]
        if columns is None:
            return tuple(dict.fromkeys(named)) or None
        found = [column for each in named for column in columns if NamePatterns(each).matches(column)]
        return tuple(dict.fromkeys(found)) or None

    def column(self, full_name: str, column: CapturedColumn, length: int | None = None) -> CapturedColumn:
        """Return a column whose values are masked or cut as the config says; the same object if it says nothing.

        `length` is that of the column's type: hashes are cut to it. Raise InvalidConnectorConfig if a mask names a
        column that is no text.
        """
        name = f"{full_name}.{column.name}"
        found = next((each for each in self._maskings if each.patterns.matches(name)), None)
        return column if found is None else _masked(name, column, found, length)

    def captured(
        self, full_name: str, column: CapturedColumn, *, is_key: bool, length: int | None = None
    ) -> CapturedColumn | None:
        """Return a column as `CapturedTable.columns` has it: None if it is left out.

        A column of the key that is left out is still in keys.
        """
        if self.has_column(full_name, column.name):
            return self.column(full_name, column, length)
        if is_key:
            return KeyOnlyColumn(column.name, column.schema, column.convert, column.placeholder)
        return None

    def propagated(self, full_name: str, column: CapturedColumn, of: SourceType | None) -> CapturedColumn:
        """Return a column whose field tells the type of the database, if the config says so. Keys never do."""
        if of is None or isinstance(column, KeyOnlyColumn):
            return column
        by_name, by_type = self._propagated
        if not by_name.matches(f"{full_name}.{column.name}") and not by_type.matches(f"{full_name}.{of.name}"):
            return column
        told = {
            f"{_SOURCE_COLUMN}.type": of.name,
            f"{_SOURCE_COLUMN}.length": str(of.length),
            **({} if of.scale is None else {f"{_SOURCE_COLUMN}.scale": str(of.scale)}),
            f"{_SOURCE_COLUMN}.name": column.name,
        }
        schema = replace(column.schema, parameters={**column.schema.parameters, **told})
        if isinstance(column, MaskedColumn):
            return replace(column, schema=schema)
        return MaskedColumn(column.name, schema, column.convert, column.placeholder, column)


class _Lists:
    """A list of what is included and one of what is excluded; the first counts if both are given."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include, self._exclude = NamePatterns(include), NamePatterns(exclude)

    def has(self, name: str) -> bool:
        return self._include.matches(name) if self._include else not self._exclude.matches(name)


def _key_entries(text: str) -> Iterator[tuple[NamePatterns, list[str]]]:
    for each in text.split(";"):
        found = KEY_COLUMNS_PATTERN.match(each)
        if found is not None:
            yield NamePatterns(found[1].strip()), [column.strip() for column in found[2].split(",")]


def _maskings(properties: Mapping[str, str]) -> Iterator[_Masking]:
    """Yield masks before cuts, so that a cut never shows what a mask hides."""
    cuts = []
    for setting, value in sorted(properties.items()):
        mask, hashed, cut = (each.fullmatch(setting) for each in (_MASK, _HASH, _TRUNCATE))
        if mask is None and hashed is None and cut is None:
            continue
        wrong = wrong_expressions(value)
        if wrong is not None:
            raise InvalidConnectorConfig(f"Invalid value {value} for configuration {setting}: {wrong}")
        patterns = NamePatterns(value)
        if mask is not None:
            text = "*" * _length(setting, mask[1])
            yield _Masking(setting, patterns, {"masked": "true"}, True, _always(text), text)
        elif hashed is not None:
            apply = _hashing(setting, hashed[2], hashed[3], is_v2=hashed[1] is not None)
            yield _Masking(setting, patterns, {"masked": "true"}, True, apply)
        elif cut is not None:
            length = _length(setting, cut[1])
            parameters = {"truncateLength": str(length)}
            cuts.append(_Masking(setting, patterns, parameters, False, _cutting(length)))
    yield from cuts


def _always(text: str) -> Convert:
    return lambda _: text


def _cutting(length: int) -> Convert:
    return lambda value: value[:length]


def _length(setting: str, digits: str) -> int:
    length = int(digits[:11])
    if length > _LENGTH_MAX:
        raise InvalidConnectorConfig(f"the number in {setting} is too large")
    return length


def _masked(name: str, column: CapturedColumn, masking: _Masking, length: int | None) -> CapturedColumn:
    schema: Schema = column.schema
    if schema.kind is not ConnectType.STRING:
        if masking.is_mask:
            raise InvalidConnectorConfig(
                f"{masking.setting} names the column {name}, which is no text: leave it out with column.exclude.list"
            )
        if schema.kind is not ConnectType.BYTES or schema.name is not None:
            return column
    is_constant = masking.constant is not None
    steps = [masking.apply] if is_constant else [column.convert, masking.apply]
    if masking.is_mask and not is_constant and length is not None and length > 0:
        steps.append(_cutting(length))
    return MaskedColumn(
        column.name,
        replace(schema, parameters={**schema.parameters, **masking.parameters}),
        _one_after_another(steps),
        masking.constant if is_constant else column.placeholder,
        column,
        masking.constant,
    )


def _one_after_another(steps: Sequence[Convert]) -> Convert:
    def convert(value: Any) -> Any:
        for each in steps:
            value = each(value)
        return value

    return convert


def _hashing(setting: str, algorithm: str, salt: str, *, is_v2: bool) -> Convert:
    """Return a function that hashes texts as Java's MessageDigest does. Its names are SHA-256, SHA3-256 and so on."""
    short = algorithm.lower()
    short = short.replace("-", "_") if short.startswith("sha3") else short.replace("-", "").replace("/", "_")
    try:
        started = hashlib.new(short, salt.encode(), usedforsecurity=False)
        started.hexdigest()
    except (ValueError, TypeError):
        raise InvalidConnectorConfig(
            f"{setting} names the hash algorithm {algorithm}, which is unknown: use SHA-256, SHA-512 or SHA3-256"
        ) from None

    def apply(value: str) -> str:
        digest = started.copy()
        digest.update(value.encode("utf-8", "surrogatepass") if is_v2 else java_serialized(value))
        return digest.hexdigest()

    return apply


def java_serialized(text: str) -> bytes:
    """Return a text as Java's ObjectOutputStream writes it, because version 1 of the hashes is one of these bytes."""
    found = bytearray()
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        unit = int.from_bytes(units[at : at + 2], "big")
        if unit == 0:
            found += b"\xc0\x80"
        else:
            found += chr(unit).encode("utf-8", "surrogatepass")
    if len(found) <= _JAVA_STRING_MAX:
        return b"\xac\xed\x00\x05\x74" + len(found).to_bytes(2, "big") + found
    return b"\xac\xed\x00\x05\x7c" + len(found).to_bytes(8, "big") + found
