"""Where our change events differ from Debezium's, and why.

`python -m tests.cdc.differences` prints the page. A difference that is not listed fails the replay, and so does a
listed one that is none any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from bench.cdc_engine.jars import DEBEZIUM_VERSION
from tests.cdc.comparing import MISSING, EventLeaf
from tests.cdc.profile import PREFIX, CdcProfile
from tests.cdc.profiles import PROFILES
from tests.cdc.recorded import recording

_ALL_TYPES: Final = tuple(name for name in PROFILES if name.startswith("types-"))
_UNKNOWN_TYPES: Final = ("types-nanoseconds", "types-source")
_ODD_ARRAYS: Final = ("aiv", "am", "ax", "apt")
_PLACES: Final = ("value.schema.before", "value.schema.after", "value.payload.after")
_INCREMENTAL: Final = ("incremental", "incremental-condition")
_EDGES: Final = ("edges-default", "edges-connect", "edges-isostring")


def _any(ours: Any, theirs: Any) -> bool:
    return True


def _invented(ours: Any, theirs: Any) -> bool:
    return ours is None and theirs is not None


def _relaxed(ours: Any, theirs: Any) -> bool:
    return ours is True and theirs is False


def _no_default(ours: Any, theirs: Any) -> bool:
    return bool(ours == MISSING and theirs != MISSING)


def _only_read_there(ours: Any, theirs: Any) -> bool:
    return bool(ours == MISSING and '"op": "r"' in theirs)


def _window_there(ours: Any, theirs: Any) -> bool:
    return bool(ours == MISSING and "window-" in theirs)


@dataclass(frozen=True)
class CdcDifference:
    """A difference: in these profiles, tables and places. Each of them must occur."""

    profiles: tuple[str, ...]
    tables: tuple[str, ...]
    """Topics without the prefix."""
    paths: tuple[str, ...]
    ours: str
    theirs: str
    reason: str
    only: Callable[[Any, Any], bool] = _any
    """Whether two values differ in the way that is meant."""

    def explains(self, profile: str, leaf: EventLeaf) -> bool:
        """Return whether this is the reason of a leaf."""
        return profile in self.profiles and self.only(leaf.ours, leaf.theirs) and bool(self.places(leaf))

    def places(self, leaf: EventLeaf) -> list[str]:
        """Return the patterns of the table and of the path that fit a leaf; none unless both do."""
        tables = [each for each in self.tables if fnmatchcase(leaf.topic.removeprefix(f"{PREFIX}."), each)]
        paths = [each for each in self.paths if fnmatchcase(leaf.path, each)]
        return [*tables, *paths] if tables and paths else []


DIFFERENCES: Final = (
    CdcDifference(
        ("snapshot", "rows", "identities", "skipped", "ddl", "defaults"),
        ("public.*",),
        ("value.schema.before.*.default",),
        "fields of `before` have no default",
        "they have the column's",
        "A reader would take the default for the value that the row had.",
        _no_default,
    ),
    CdcDifference(
        ("snapshot", "rows", "identities", "keys-lacking", "skipped", "ddl", "defaults", *_INCREMENTAL),
        ("public.*",),
        ("value.schema.before.*.optional",),
        "fields of `before` that are not in the key are optional",
        "they are required if the column is NOT NULL",
        "Without REPLICA IDENTITY FULL PostgreSQL does not send them.",
        _relaxed,
    ),
    CdcDifference(
        ("rows", "identities", "defaults"),
        ("public.*",),
        ("value.payload.before.*",),
        "null for a column of a deleted row that PostgreSQL did not send",
        "an empty text, 0, or the column's default",
        "A value that the row never had is worse than none.",
        _invented,
    ),
    CdcDifference(
        ("flat-rewrite",),
        ("public.customers",),
        ("value.schema.name.optional", "value.schema.credit.default", "value.payload.name", "value.payload.credit"),
        "a deleted row has null for columns that are not known",
        "an empty text, or the column's default",
        "The flat record is made of `before`.",
    ),
    CdcDifference(
        ("identities",),
        ("public.i_index",),
        ("key.schema.*", "key.payload.*", "headers.__debezium.newkey.*", "headers.__debezium.oldkey.*"),
        "the key has the columns of the index",
        "the key is the primary key; that of a deleted row is `{id: 0}`, because PostgreSQL does not send it",
        "With REPLICA IDENTITY USING INDEX these columns are all that is known of a deleted row.",
    ),
    CdcDifference(
        ("keys-lacking",),
        ("", "public.*"),
        ("failure", "record"),
        "the task stops before a deleted row whose `message.key.columns` PostgreSQL does not send, and says what to do",
        "the key of the deleted row has empty texts and zeros",
        "The tombstone of such a key removes another row, or none.",
    ),
    CdcDifference(
        ("ddl",),
        ("public.gone",),
        ("key", "value.schema.before.id.optional", "value.schema.after.id.optional"),
        "a row of a table that was dropped in the same transaction has its key",
        "no key, and its column is optional",
        "The stream tells which columns are the key; Debezium asks the catalogue, too late.",
    ),
    CdcDifference(
        ("defaults",),
        ("public.defaults",),
        ("value.schema.after.t.default",),
        "`it's`",
        "`it`",
        "A quote in a default is a part of it.",
    ),
    CdcDifference(
        ("defaults",),
        ("public.defaults",),
        ("value.schema.*.order", "value.schema.before.g", "value.schema.after.g", "value.payload.after.g"),
        "a generated column is never there",
        "it is in the snapshot, but not in the stream",
        "Both have the same schema here. The publication does not send generated columns.",
    ),
    CdcDifference(
        ("transactions",),
        ("transaction", "public.*"),
        ("key.payload.id", "value.payload.id", "value.payload.transaction.id"),
        "all events of a transaction, its BEGIN and its END have one id",
        "the id ends with the position of each event, so all differ",
        "An id names the transaction.",
    ),
    CdcDifference(
        ("partitioned",),
        ("public.p", "public.p_2025", "public.p_2026"),
        ("record",),
        "rows of partitions are rows of the partitioned table",
        "a topic per partition, and the snapshot reads each row twice",
        "One table is one topic. `publish.via.partition.root=false` gives a topic per partition.",
    ),
    CdcDifference(
        ("partitioned-root",),
        ("public.p_2025", "public.p_2026"),
        ("record",),
        "the snapshot reads the partitioned table",
        "it reads the partitions, too",
        "Each row is read once, and goes to the topic of the stream.",
        _only_read_there,
    ),
    CdcDifference(
        ("partitioned-leaves",),
        ("public.p",),
        ("record",),
        "the snapshot reads the partitions",
        "it reads the partitioned table, too",
        "Each row is read once, and goes to the topic of the stream.",
        _only_read_there,
    ),
    CdcDifference(
        ("partitioned-leaves",),
        ("public.p_2025",),
        ("value.payload.source.snapshot",),
        "the first row is in the first partition",
        "the first row is in the partitioned table",
        "The snapshot does not read that.",
    ),
    CdcDifference(
        tuple(each for each in _ALL_TYPES if each not in _UNKNOWN_TYPES),
        ("public.t_text",),
        ("value.payload.after.na", "value.payload.before.na"),
        "the value of a `name` column",
        "null in the stream",
        "The snapshot has it on both sides, and so has the stream with `include.unknown.datatypes`.",
        lambda ours, theirs: isinstance(ours, str) and theirs is None,
    ),
    CdcDifference(
        tuple(each for each in _ALL_TYPES if each not in ("types-connect", "types-microseconds")),
        ("public.t_number",),
        (
            "value.schema.*.nneg.parameters.scale",
            "value.schema.*.nneg.parameters.connect.decimal.precision",
            "value.payload.after.nneg",
            "value.payload.before.nneg",
        ),
        "numeric(3,-2) is a decimal of five digits",
        "a decimal of 2046 places",
        "A negative scale is -2, not 2046.",
    ),
    CdcDifference(
        ("types-connect",),
        ("public.t_number",),
        ("value.payload.after.nneg", "value.payload.before.nneg"),
        "`12300` of numeric(3,-2)",
        "`12300.` with 2046 zeros",
        "A negative scale is -2, not 2046.",
    ),
    CdcDifference(
        tuple(each for each in _ALL_TYPES if each != "types-connect"),
        ("public.t_array",),
        ("value.payload.after.ati", "value.payload.before.ati"),
        "microseconds in arrays of time",
        "milliseconds, the rest is cut off",
        "The column has microseconds.",
    ),
    CdcDifference(
        _ALL_TYPES,
        ("public.t_array",),
        ("value.payload.after.atz", "value.payload.before.atz"),
        "microseconds in arrays of timetz",
        "seconds, the rest is cut off",
        "The column has microseconds.",
    ),
    CdcDifference(
        _ALL_TYPES,
        ("public.t_array",),
        ("value.schema.*.ae.items.optional",),
        "elements of an array of an enum are optional",
        "they are required",
        "An element may be NULL, as in all other arrays.",
        _relaxed,
    ),
    CdcDifference(
        _UNKNOWN_TYPES,
        ("public.t_unknown",),
        ("value.schema.*.aco.items.optional",),
        "elements of an array of an unknown type are optional",
        "they are required",
        "An element may be NULL, as in all other arrays.",
        _relaxed,
    ),
    CdcDifference(
        _ALL_TYPES,
        ("public.t_array_odd",),
        ("value.schema.*.abit.*", "value.payload.after.abit"),
        "an array of bit(n) is an array of Bits",
        "one Bits, and always null",
        "The values are lost there.",
    ),
    CdcDifference(
        _ALL_TYPES,
        ("public.t_array_odd",),
        ("value.payload.after.a2d",),
        "the elements of an array of two dimensions, in one list",
        "`[null, null]`",
        "The values are lost there. The type of a column does not tell how many dimensions its arrays have.",
    ),
    CdcDifference(
        _UNKNOWN_TYPES,
        ("public.t_array_odd",),
        ("value.schema.*.order", *(f"{place}.{name}" for name in _ODD_ARRAYS for place in _PLACES)),
        "arrays of interval, money, xml and point",
        "left out even with `include.unknown.datatypes`",
        "Their elements have a form of their own.",
    ),
    CdcDifference(
        _EDGES,
        ("public.t_edge",),
        ("value.payload.after.d",),
        "a date is the same in the snapshot as in the stream",
        "the snapshot counts days before 1582-10-15 by the Julian calendar, and makes other dates of infinity",
        "PostgreSQL's calendar is the Gregorian one.",
    ),
    CdcDifference(
        ("types-source",),
        ("public.t_number",),
        ("value.schema.*.nneg.parameters.__debezium.source.column.scale",),
        "-2 as the scale of numeric(3,-2)",
        "2046",
        "A negative scale is -2, not 2046.",
    ),
    CdcDifference(
        ("types-source",),
        ("public.t_number",),
        (
            "value.schema.*.n0.parameters.__debezium.source.column.length",
            "value.schema.*.n0.parameters.__debezium.source.column.scale",
        ),
        "a numeric without a precision has the same type in the snapshot as in the stream",
        "length 0 and no scale in the snapshot, 131089 and 0 in the stream",
        "One column has one schema.",
    ),
    CdcDifference(
        _INCREMENTAL,
        ("public.signals",),
        ("record",),
        "an incremental snapshot writes nothing to the signal table",
        "rows that open and close a window for each chunk, which are events of that table themselves",
        "Which transactions a chunk sees is known without marks, so a role that may only read is enough.",
        _window_there,
    ),
    CdcDifference(
        _INCREMENTAL,
        ("public.zz_marker",),
        ("value.payload.source.txId", "value.payload.source.lsn"),
        "changes behind an incremental snapshot are the next transactions",
        "the rows of windows are transactions before them",
        "The ids are compared by their order.",
    ),
    CdcDifference(
        ("incremental",),
        ("public.a",),
        ("value.payload.source.txId", "value.payload.source.lsn"),
        "changes behind an incremental snapshot are the next transactions",
        "the rows of windows are transactions before them",
        "The ids are compared by their order.",
        lambda ours, theirs: ours is not None and theirs is not None,
    ),
)

PENDING: Final[dict[str, str]] = {}
"""Profiles that are not alike yet, and why."""


def unexplained(profile: CdcProfile, found: Sequence[EventLeaf]) -> list[str]:
    """Return what differs without being listed, and what is listed without differing."""
    problems = [str(leaf) for leaf in found if not any(each.explains(profile.name, leaf) for each in DIFFERENCES)]
    for each in DIFFERENCES:
        if profile.name in each.profiles:
            used = {place for leaf in found if each.explains(profile.name, leaf) for place in each.places(leaf)}
            problems += [
                f"listed, but alike: {place!r} of {each.ours!r}"
                for place in (*each.tables, *each.paths)
                if place not in used
            ]
    return problems


def page() -> str:
    """Return the page as Markdown."""
    rows = "".join(
        f"| {_names(each.profiles)} | {_cell(each.ours)} | {_cell(each.theirs)} | {_cell(each.reason)} |\n"
        for each in DIFFERENCES
    )
    pending = "".join(f"| `{name}` | {what} |\n" for name, what in PENDING.items())
    return _head() + rows + (_PENDING_HEAD + pending if pending else "")


def _names(profiles: Sequence[str]) -> str:
    if profiles == _ALL_TYPES:
        return "`types-*`"
    return ", ".join(f"`{name}`" for name in profiles)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_PENDING_HEAD: Final = """
## Not alike yet

| profile | what differs on our side |
|---|---|
"""


def _head() -> str:
    count = sum(len(recording(each)[1]) for each in PROFILES.values())
    return f"""\
# Where Debezium's change events differ

`tests/cdc` runs {len(PROFILES)} profiles (settings of the connector, and SQL before and during the stream) on a
PostgreSQL server and compares topic, key, value, schemas and headers of each record with those of Debezium
{DEBEZIUM_VERSION}: {count:,} records, kept in `tests/cdc/recordings`. Positions, ids of transactions and times are
compared by what they have in common, not by their values. Nulls are written as nulls on both sides
(`replace.null.with.default=false`). A difference that is not listed here fails the test.

| profile | we write | Debezium writes | why |
|---|---|---|---|
"""


if __name__ == "__main__":
    print(page(), end="")
