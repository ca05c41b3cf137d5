"""`strandline console serve`: the web console, a process beside any Kafka cluster."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.command_config import client_properties
from strandline.cli.common.failures import CommandFailed, Interrupted, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, Bootstrap, ClientProperties, with_ports
from strandline.cli.common.output import Output
from strandline.cli.common.service_options import service_settings

LISTEN_DEFAULT = "127.0.0.1:8080"
NAME_DEFAULT = "cluster"


def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="[https://]HOST:PORT",
            help=f"Where browsers connect, {LISTEN_DEFAULT} by default; port 0 takes a free one.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Properties of the console: clusters, TLS, masks."),
    ] = None,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME=HOST:PORT", help="A cluster with its name. May be repeated."),
    ] = None,
    registry: Annotated[str, typer.Option("--registry", metavar="URL", help="The schema registry.")] = "",
    connect: Annotated[str, typer.Option("--connect", metavar="URL", help="A worker of Kafka Connect.")] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything and change nothing.")] = False,
    masks: Annotated[
        list[str] | None,
        typer.Option("--mask", metavar="RULE", help="Hide values: 'payments-* value $.card'. May be repeated."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Serve the web console until SIGTERM or Ctrl-C.

    Prints one line, `ready URL`, when it listens. It starts without the cluster, and shows it when it is there.
    Visitors of a cluster with a login (SASL) log in as its users, and may do what their ACLs allow. Off loopback it
    needs TLS for that, and a cluster without a login cannot be changed.
    """
    try:
        from strandline.services.console.console_service import ConsoleService
        from strandline.services.console.console_settings import ConsoleServiceSettings
    except ModuleNotFoundError as error:
        hint = "pip install 'strandline[console]'"
        raise CommandFailed(f"the console needs a package that is not installed: {error.name}", hint=hint) from None
    from strandline.errors import InvalidConfig

    given = service_settings(config, listen, properties, listen_default=LISTEN_DEFAULT)
    if "clusters" not in given or clusters or bootstrap != BOOTSTRAP_DEFAULT:
        given |= _named_clusters(clusters, bootstrap, client_properties(properties), registry, connect)
    if read_only:
        given["console.read.only"] = "true"
    given |= {f"console.mask.option-{number}": rule for number, rule in enumerate(masks or ())}
    output = Output()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")

    def on_ready() -> None:
        output.line(f"ready {service.url}")
        output.flush()

    try:
        settings = ConsoleServiceSettings.of(given)
    except InvalidConfig as error:
        raise UsageFailed(str(error), hint="docs/console.md has the settings") from None
    try:
        service = ConsoleService(settings, on_ready)
    except InvalidConfig as error:
        raise CommandFailed(str(error), hint="if another console runs there, say --listen with another port") from None
    try:
        service.run()
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None
    except (Interrupted, KeyboardInterrupt):
        pass


def _named_clusters(
    clusters: list[str] | None, bootstrap: str, client: dict[str, str], registry: str, connect: str
) -> dict[str, str]:
    """Return the settings of the clusters of --cluster, or else of --bootstrap-server."""
    from strandline.client.security import is_security_name

    named = {}
    for text in clusters or [f"{NAME_DEFAULT}={bootstrap}"]:
        name, equals, servers = text.partition("=")
        if not equals:
            raise UsageFailed(f"--cluster {text} is not NAME=HOST:PORT")
        named[name] = with_ports(servers) or ""
    found = {"clusters": ",".join(named)}
    for name, servers in named.items():
        found[f"cluster.{name}.bootstrap.servers"] = servers
        found |= {f"cluster.{name}.{key}": text for key, text in client.items() if is_security_name(key)}
        found |= {f"cluster.{name}.{key}": text for key, text in (("registry", registry), ("connect", connect)) if text}
    return found
