"""Connectors by their names: those that come with Strandline, those of installed packages, and `module:Class`.

A config names a class, and a worker would run whatever it names. So only three kinds are known: the table below,
entry points of the group `strandline.connectors`, and modules that the worker's `plugin.modules` allows. The aliases
are Kafka's names, so that configs written for Kafka Connect work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Literal

from strandline._version import __version__
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.sink import Sink
from strandline.connect.source import Source

ConnectorKind = Literal["source", "sink"]
GROUP: Final = "strandline.connectors"
_KAFKA_FILE: Final = "org.apache.kafka.connect.file."


@dataclass(frozen=True)
class Plugin:
    """A connector that can be named. It is imported when it is used, because it may need an extra."""

    name: str
    kind: ConnectorKind
    place: str
    """`module:Class`."""
    version: str = __version__
    aliases: tuple[str, ...] = ()
    extra: str = ""
    """The extra of Strandline that it needs."""

    def load(self) -> type[Source] | type[Sink]:
        """Return the class. Raise InvalidConnectorConfig if it cannot be imported, or is no connector."""
        module, _, name = self.place.partition(":")
        try:
            found = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            hint = f": pip install 'strandline[{self.extra}]'" if self.extra else ""
            raise InvalidConnectorConfig(f"{self.name} needs the package {error.name}{hint}") from None
        except (ImportError, AttributeError) as error:
            raise InvalidConnectorConfig(f"{self.name} cannot be imported: {error}") from None
        if not isinstance(found, type) or not issubclass(found, Source | Sink):
            raise InvalidConnectorConfig(f"{self.place} is no strandline.connect.Source or Sink")
        return found


def _source(name: str, place: str, *aliases: str, extra: str = "") -> Plugin:
    return Plugin(name, "source", f"strandline.connect.sources.{place}", aliases=aliases, extra=extra)


def _cdc_source(name: str, place: str, *aliases: str, extra: str) -> Plugin:
    return Plugin(name, "source", f"strandline.cdc.{place}", aliases=aliases, extra=extra)


def _sink(name: str, place: str, *aliases: str, extra: str = "") -> Plugin:
    return Plugin(name, "sink", f"strandline.connect.sinks.{place}", aliases=aliases, extra=extra)


BUILT_IN: Final = (
    _source("FileSource", "files:FileSource", *(f"{each}FileStreamSource" for each in ("", _KAFKA_FILE))),
    _source("GeneratorSource", "generator:GeneratorSource"),
    _source("HttpPollingSource", "http_polling:HttpPollingSource"),
    _cdc_source(
        "MariadbCdcSource",
        "mariadb.source:MariadbCdcSource",
        "io.debezium.connector.mariadb.MariaDbConnector",
        extra="mariadb",
    ),
    _source("ObjectSource", "objects:ObjectSource", extra="objects"),
    Plugin("OutboxSource", "source", "strandline.outbox.source:OutboxSource", extra="postgres"),
    _source("OtlpSource", "otlp:OtlpSource", extra="otlp"),
    _cdc_source(
        "PostgresCdcSource",
        "postgres.source:PostgresCdcSource",
        "io.debezium.connector.postgresql.PostgresConnector",
        extra="postgres",
    ),
    _source("SqlSource", "sql_tables:SqlSource", extra="sql"),
    _source("SyslogSource", "syslog:SyslogSource"),
    _source("WebhookSource", "webhook:WebhookSource", extra="connect"),
    _sink("DeltaSink", "lake.delta:DeltaSink", extra="delta"),
    _sink("DuckdbSink", "sql.duckdb:DuckdbSink", extra="duckdb"),
    _sink("FileSink", "files:FileSink", *(f"{each}FileStreamSink" for each in ("", _KAFKA_FILE))),
    _sink("HttpSink", "http:HttpSink"),
    _sink("IcebergSink", "lake.iceberg:IcebergSink", extra="iceberg"),
    _sink("ObjectSink", "lake.objects:ObjectSink", extra="objects"),
    _sink("OpenSearchSink", "opensearch:OpenSearchSink"),
    _sink("PostgresSink", "sql.postgres:PostgresSink", extra="postgres"),
    _sink("RedisSink", "redis:RedisSink", extra="redis"),
    _sink("SearchSink", "search:SearchSink", extra="search"),
    _sink("SqliteSink", "sql.sqlite:SqliteSink"),
)


class Plugins:
    """Every connector that a worker may run."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """`modules` are those whose classes a config may name as `module:Class`."""
        self._modules = frozenset(modules)
        self._plugins = [*BUILT_IN, *_installed()]
        self._by_name = {name: each for each in self._plugins for name in _names(each)}

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins)

    def find(self, name: str) -> Plugin:
        """Return the plugin of a name. Raise InvalidConnectorConfig if there is none, or it is not allowed."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        module, colon, class_name = name.partition(":")
        if not colon:
            known = ", ".join(sorted(each.name for each in self._plugins))
            raise InvalidConnectorConfig(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}"
            )
        if module not in self._modules:
            raise InvalidConnectorConfig(
                f"the worker does not run classes of the module {module}: name it in plugin.modules of the worker"
            )
        loaded = Plugin(name, "source", f"{module}:{class_name}").load()
        return Plugin(
            name, "source" if issubclass(loaded, Source) else "sink", name, version=loaded.version or __version__
        )


def _names(plugin: Plugin) -> Iterator[str]:
    """Yield what a config may call a plugin; Kafka takes `X` for `XConnector`."""
    for name in (plugin.name, *plugin.aliases):
        yield name
        yield f"{name}Connector"


def _installed() -> Iterator[Plugin]:
    for point in entry_points(group=GROUP):
        yield Plugin(point.name, _kind_of(point), point.value, _version_of(point))


def _kind_of(point: EntryPoint) -> ConnectorKind:
    """Return the kind that the name tells: an entry point is not imported to be listed."""
    return "source" if "source" in point.name.lower() else "sink"


def _version_of(point: EntryPoint) -> str:
    return point.dist.version if point.dist is not None else "unknown"
