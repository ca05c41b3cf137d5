"""A connector of a file, made in this process: for commands that look at what it would do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import Cluster, connect
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed, did_you_mean
from strandline.cli.common.options import BOOTSTRAP_DEFAULT
from strandline.cli.connect.connector_files import ConnectorFile, read_connector_file

if TYPE_CHECKING:
    from strandline.connect.plugins import Plugin
    from strandline.connect.sink import Sink
    from strandline.connect.source import Source
    from strandline.connect.tasks.conversion import Conversion

HIDDEN: Final = "[hidden]"

ConnectorFileName = Annotated[Path, typer.Argument(metavar="FILE", help="Connectors: JSON, YAML or properties.")]
OneName = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The connector, if the file has several.")]


@dataclass(frozen=True)
class LocalConnector:
    """A config with secrets and the worker's defaults in it, and the class that it names."""

    name: str
    plugin: Plugin
    connector_class: type[Source] | type[Sink]
    properties: Mapping[str, str]
    modules: tuple[str, ...]

    @classmethod
    def of(cls, name: str, config: Mapping[str, str], worker: Mapping[str, str]) -> LocalConnector:
        """Resolve a config as a worker would that runs files of this user. Raise CommandFailed."""
        from strandline.connect.herder.secrets import Secrets
        from strandline.connect.herder.worker_settings import WorkerSettings, with_defaults
        from strandline.connect.plugins import Plugins

        with plain_failures(name):
            settings = WorkerSettings(worker)
            plugin = Plugins(settings.plugin_modules).find(config.get("connector.class", ""))
            resolved = Secrets(settings.properties, allows_all=True).resolve(
                with_defaults(settings.of_connectors(), config)
            )
            return cls(name, plugin, plugin.load(), resolved, tuple(settings.plugin_modules))

    def make(self, more: Mapping[str, str] | None = None) -> Any:
        """Return the connector, not yet open. `more` are settings of a task."""
        with plain_failures(self.name):
            return self.connector_class(self.connector_class.Config({**self.properties, **(more or {})}))

    def conversion(self) -> Conversion:
        """Return its converters and transforms."""
        from strandline.connect.tasks.conversion import Conversion

        with plain_failures(self.name):
            return Conversion(self.properties, self.modules)

    def sink(self, offers: str, doing: str) -> Any:
        """Return the connector, which must be a sink with a method. Raise UsageFailed if it is none."""
        if self.plugin.kind != "sink":
            raise UsageFailed(f"{self.name} is a source, and only targets of sinks can be {doing}")
        if not hasattr(self.connector_class, offers):
            why = getattr(self.connector_class, "no_target", "it does not offer that")
            raise UsageFailed(f"the target of {self.plugin.name} cannot be {doing}: {why}")
        return self.make()


class Methods:
    """Calls of a connector's methods, coroutines and plain ones. One loop serves them all, as in a task."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def __enter__(self) -> Methods:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._runner.close()

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Return what a method returns."""
        result = method(*args)
        return self._runner.run(_awaited(result)) if inspect.isawaitable(result) else result

    @contextmanager
    def opened(self, connector: Any) -> Iterator[Any]:
        """Open a connector, and close it whatever happens."""
        try:
            self.call(connector.open)
            yield connector
        finally:
            self.call(connector.close)


async def _awaited(result: Any) -> Any:
    return await result


@contextmanager
def plain_failures(name: str) -> Iterator[None]:
    """Turn what connectors raise into a failure of the command that names the connector."""
    from strandline.connect.failures import ConnectFailed

    try:
        yield
    except ConnectFailed as error:
        raise CommandFailed(f"{name}: {error}") from error


def chosen(file: ConnectorFile, path: Path, name: str | None) -> tuple[str, dict[str, str]]:
    """Return name and config of the connector that a command is about. Raise CommandFailed."""
    known = file.connectors
    if name is None:
        if len(known) > 1:
            raise UsageFailed(f"{path} has several connectors: say --name with one of {', '.join(known)}")
        return next(iter(known.items()))
    if name not in known:
        meant = did_you_mean(name, known)
        raise NotFound(f"{path} has no connector {name!r}", hint=f"{meant}?" if meant else f"it has {', '.join(known)}")
    return name, known[name]


def local_connector(path: Path, name: str | None) -> tuple[LocalConnector, ConnectorFile]:
    """Return a connector of a file."""
    file = read_connector_file(path)
    return LocalConnector.of(*chosen(file, path, name), file.worker), file


@contextmanager
def cluster_at(bootstrap: str | None, timeout_s: float) -> Iterator[Cluster]:
    """Connect to the cluster that was named, or to that of `connect run` in this directory, or to the usual address."""
    from strandline.pipelines.run.local_node import GroundFailed, find_ground, has_node, running_node

    with ExitStack() as ended:
        if bootstrap is None:
            try:
                bootstrap = ended.enter_context(find_ground(None)).wait_ready() if has_node() else running_node()
            except GroundFailed as error:
                raise CommandFailed(str(error)) from None
        yield connect(bootstrap or BOOTSTRAP_DEFAULT, None, timeout_s)
