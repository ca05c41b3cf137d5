"""Options of the formats for tables: the settings of the sinks of connectors, as far as a stream needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.paths import PathRules
from strandline.connect.sinks.lake.lake_table import LakeTable
from strandline.connect.sinks.lake.table_sink import TableSink
from strandline.spark.sink.failures import SinkRefused

CLASSES: Final = {
    "iceberg": "strandline.connect.sinks.lake.iceberg:IcebergSink",
    "delta": "strandline.connect.sinks.lake.delta:DeltaSink",
}
PREFIXES: Final = {"iceberg": "catalog.", "delta": "storage."}
_TAKEN: Final = {
    "iceberg": ("table", "catalog.name", "namespace", "auto.create", "auto.evolve"),
    "delta": ("table", "table.url", "secret.access.key", "partition.by", "auto.create", "auto.evolve"),
}
_SPARKS: Final = ("checkpointlocation", "queryname", "querylogdir")
_REFUSED: Final = {
    "path": "start() takes no path: name the table by the option table",
    "upsert": "it only adds rows; for rows with keys use the connector without engine=spark",
    "key.fields": "it only adds rows; for rows with keys use the connector without engine=spark",
}


@dataclass(frozen=True)
class LakeOptions:
    """A table and how it is reached; travels to the tasks."""

    kind: str
    table: str
    properties: tuple[tuple[str, str], ...]
    checkpoint: str | None = None

    def sink(self) -> TableSink:
        """Return the sink of a connector that is open. Raise SinkRefused if the settings are wrong."""
        return open_sink(self.kind, dict(self.properties))

    def open(self) -> tuple[TableSink, LakeTable]:
        sink = self.sink()
        return sink, sink.table_named(self.table)


def open_sink(kind: str, properties: Mapping[str, str], allowed_paths: Sequence[str] | None = None) -> TableSink:
    """Return a sink that is open, and may touch these paths; all for None."""
    module, _, name = CLASSES[kind].partition(":")
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise SinkRefused(
            f"strandline_{kind} needs the package {error.name}: pip install 'strandline[{kind}]'"
        ) from None
    try:
        sink: TableSink = found(found.Config(dict(properties)))
        sink.paths = PathRules(allowed_paths)
        sink.open()
    except InvalidConnectorConfig as error:
        raise SinkRefused(str(error)) from None
    return sink


def parse_options(kind: str, given: Mapping[str, str]) -> LakeOptions:
    """Return the options of a stream. SinkRefused says what is wrong with one."""
    options = {name.lower(): str(value) for name, value in given.items()}
    for name in options:
        if name in _REFUSED:
            raise SinkRefused(f"{name} is no option of strandline_{kind}: {_REFUSED[name]}.")
        if name not in (*_TAKEN[kind], *_SPARKS) and not name.startswith(PREFIXES[kind]):
            raise SinkRefused(
                f"{name} is no option of strandline_{kind}: it has {', '.join(_TAKEN[kind])} and {PREFIXES[kind]}*."
            )
    table = options.get("table", "").strip()
    if not table:
        raise SinkRefused(f"The option table is missing: strandline_{kind} writes to one table.")
    checkpoint = options.get("checkpointlocation")
    properties = {name: value for name, value in options.items() if name not in _SPARKS}
    return LakeOptions(kind, table, tuple(sorted(properties.items())), checkpoint)
