"""Whether every record that a topic holds still decodes, by the schemas of a registry.

Records are read once, a thousand at a time, and only counts are kept: by schema, and by partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import Earliest, Latest
from strandline.cli.common.progress import Progress
from strandline.cli.records.reading import Reading, look_up_ranges
from strandline.cli.records.record import ReadRecord, header_of
from strandline.cli.schema.payloads import PayloadDecoder
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources, engines_for
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.schemas.engines import SchemaSource
from strandline.schemas.failures import RegistryError
from strandline.schemas.payloads.wire_format import HEADERS, SchemaName

SCHEMAS_MAX: Final = 1000
"""Schemas that are counted one by one. Bytes that are no schema's id may look like one."""
NO_SCHEMA: Final = "names no schema: it does not begin with a schema id"


@dataclass
class SchemaTally:
    """The records of one schema. `unreadable` says why a new schema could not read what this one wrote."""

    records: int = 0
    bad: int = 0
    reason: str = ""
    unreadable: str = ""


@dataclass
class PartitionTally:
    """The records of one partition that do not decode, and the first of them."""

    bad: int
    first_offset: int
    schema: SchemaName | None
    reason: str


class DataCheck:
    """A sink of records that decodes each, and counts."""

    def __init__(self, sources: SchemaSources, new: SchemaSource | None, parts: tuple[str, ...], bar: Progress) -> None:
        self.done = False
        self.records = 0
        self.nulls = 0
        self.bad_records = 0
        self.by_schema: dict[tuple[str, SchemaName | None], SchemaTally] = {}
        """By part of the record; None counts what names no schema, and schemas beyond the limit."""
        self.by_partition: dict[tuple[str, int], PartitionTally] = {}
        self._sources = sources
        self._decoder = PayloadDecoder(sources)
        self._new = new
        self._parts = parts
        self._bar = bar

    def take(self, records: list[ReadRecord]) -> int:
        for record in records:
            good = [self._is_good(record, part) for part in self._parts]
            self.bad_records += not all(good)
        self.records += len(records)
        self._bar.advance(len(records))
        return len(records)

    def _is_good(self, record: ReadRecord, part: str) -> bool:
        content = record.key if part == "key" else record.value
        if content is None:
            self.nulls += part == "value"
            return True
        found = self._decoder.decode(content, header_of(record.headers, HEADERS[part]))
        schema, reason = (None, NO_SCHEMA) if found is None else (found.schema, found.reason)
        tally = self._tally(part, schema)
        tally.records += 1
        reason = reason or tally.unreadable
        if not reason:
            return True
        tally.bad += 1
        tally.reason = tally.reason or reason
        place = self.by_partition.get((part, record.partition))
        if place is None:
            place = PartitionTally(0, record.offset, schema, reason)
            self.by_partition[part, record.partition] = place
        place.bad += 1
        return False

    def _tally(self, part: str, schema: SchemaName | None) -> SchemaTally:
        tally = self.by_schema.get((part, schema))
        if tally is None:
            if len(self.by_schema) >= SCHEMAS_MAX:
                schema = None
            tally = self.by_schema.setdefault((part, schema), SchemaTally())
            if schema is not None and part == "value":
                tally.unreadable = self._unreadable(schema)
        return tally

    def _unreadable(self, schema: SchemaName) -> str:
        """Return why the new schema cannot read what this one wrote; empty if it can, or if there is no new one."""
        if self._new is None:
            return ""
        try:
            written = self._sources.by_name(schema)
            if written.type != self._new.type:
                return f"it was written as {written.type}, and the file is {self._new.type}"
            engines = engines_for([self._new])
            reasons = engines.parse(self._new).differences(engines.parse(written))
        except NotFound:
            return ""
        except RegistryError as error:
            raise CommandFailed(error.message) from None
        return f"the file does not read it: {reasons[0].message}" if reasons else ""


def check_data(
    cluster: Cluster,
    api: SchemaApi,
    output: Output,
    topic: str,
    partitions: list[int] | None,
    body: dict[str, Any] | None,
    *,
    with_keys: bool,
) -> bool:
    """Read a topic to its end, print what was found, and return whether every record decodes."""
    admin = cluster.admin()
    chosen = chosen_partitions(described(cluster, admin, topic), partitions)
    ranges = look_up_ranges(cluster, admin, topic, chosen, Earliest(), Latest())
    sources = SchemaSources(api)
    new = None if body is None else sources.of(body)
    parts = ("key", "value") if with_keys else ("value",)
    total = sum(end - start for _, start, end in ranges.values())
    with Progress("checking", total=total, unit="records") as bar:
        check = DataCheck(sources, new, parts, bar)
        Reading(cluster, topic, ranges).run(check, follow=False)
    _print(output, api, topic, check)
    return not check.bad_records


def _print(output: Output, api: SchemaApi, topic: str, check: DataCheck) -> None:
    rows = [
        {"topic": topic, "part": part, "schema": schema, **_place_of(api, topic, schema), **_figures(tally)}
        for (part, schema), tally in sorted(check.by_schema.items(), key=lambda each: (each[0][0], str(each[0][1])))
    ]
    places = [
        {"topic": topic, "part": part, "partition": partition, "bad": each.bad, "first_offset": each.first_offset}
        | {"schema": each.schema, "reason": each.reason}
        for (part, partition), each in sorted(check.by_partition.items())
    ]
    if output.as_json:
        for row in [*rows, *places]:
            output.json_line(row)
        summary = {"records": check.records, "without_value": check.nulls, "bad": check.bad_records}
        output.json_line({"topic": topic, **summary, "decodes": not check.bad_records})
        return
    if rows:
        output.table(["part", "schema", "subject", "records", "bad", "reason"], [_schema_cells(row) for row in rows])
    if places:
        output.line("")
        columns = ["partition", "bad", "first offset", "part", "schema", "reason"]
        output.table(columns, [_partition_cells(row) for row in places])
    output.line("")
    if check.bad_records:
        output.line(f"{check.bad_records:,} of {count(check.records, 'record')} of {topic} do not decode")
    else:
        output.line(f"every record of {topic} decodes: {count(check.records, 'record')}")


def _figures(tally: SchemaTally) -> dict[str, Any]:
    return {"records": tally.records, "bad": tally.bad, "reason": tally.reason or None}


def _shown(schema: SchemaName | None) -> str:
    return "none" if schema is None else str(schema)


def _schema_cells(row: dict[str, Any]) -> list[str]:
    subject = f"{row['subject']} version {row['version']}" if row["subject"] else ""
    return [row["part"], _shown(row["schema"]), subject, f"{row['records']:,}", f"{row['bad']:,}", row["reason"] or ""]


def _partition_cells(row: dict[str, Any]) -> list[str]:
    where = [str(row["partition"]), f"{row['bad']:,}", str(row["first_offset"])]
    return [*where, row["part"], _shown(row["schema"]), row["reason"]]


def _place_of(api: SchemaApi, topic: str, schema: SchemaName | None) -> dict[str, Any]:
    """Return a subject and version that have a schema; of this topic, if one has."""
    found: list[dict[str, Any]] = []
    if isinstance(schema, int):
        try:
            found = api.ask("GET", "schemas", "ids", str(schema), "versions", deleted=True)
        except CommandFailed:
            found = []
    of_topic = [each for each in found if each["subject"] in (f"{topic}-value", f"{topic}-key")]
    best = next(iter(of_topic or found), {})
    return {"subject": best.get("subject"), "version": best.get("version")}
