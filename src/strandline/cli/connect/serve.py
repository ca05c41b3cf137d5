"""`strandline connect serve`: a worker of connectors, a process beside any Kafka cluster."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, Interrupted, Unreachable, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.service_options import service_settings

if TYPE_CHECKING:
    from strandline.services.connect.connect_service import ConnectService

LISTEN_DEFAULT = "127.0.0.1:8083"


def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="[https://]HOST:PORT",
            help=f"Where the REST API is, {LISTEN_DEFAULT} by default; port 0 takes a free one.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Properties of the worker, as connect-distributed.properties."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="The workers that share connectors.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the worker does.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Run connectors, with Kafka Connect's REST API, until SIGTERM or Ctrl-C.

    Prints one line, `ready URL`, when the worker has joined its group. Workers of one group share the tasks of all
    connectors. `/livez`, `/readyz` and `/metrics` say how the process is. Off loopback it needs TLS and the users of
    the cluster: see --config.
    """
    try:
        from strandline.services.connect.connect_service import ConnectService
        from strandline.services.connect.connect_settings import ConnectServiceSettings
    except ModuleNotFoundError as error:
        hint = "pip install 'strandline[connect]'"
        raise CommandFailed(f"a worker needs a package that is not installed: {error.name}", hint=hint) from None
    from strandline.client.security import is_security_name
    from strandline.errors import InvalidConfig

    given = service_settings(config, listen, properties, listen_default=LISTEN_DEFAULT)
    if group is not None:
        given["group.id"] = group
    servers = bootstrap if bootstrap != BOOTSTRAP_DEFAULT else given.get("bootstrap.servers", bootstrap)
    of_client = [f"{name}={value}" for name, value in given.items() if is_security_name(name)]
    cluster, output = connect(servers, of_client, timeout), Output()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )

    def on_ready() -> None:
        output.line(f"ready {service.url}")
        output.flush()

    try:
        settings = ConnectServiceSettings.of(
            given | cluster.properties | {"bootstrap.servers": cluster.bootstrap}, cluster.servers
        )
    except InvalidConfig as error:
        raise UsageFailed(str(error), hint="docs/connect.md has the settings") from None
    try:
        service = ConnectService(settings, on_ready)
    except InvalidConfig as error:
        raise CommandFailed(str(error), hint="if another worker runs there, say --listen with another port") from None
    try:
        _run(service)
    except (Interrupted, KeyboardInterrupt):
        return
    if service.is_full and not service.was_signalled:
        _start_again()


def _run(service: ConnectService) -> None:
    from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
    from strandline.errors import InvalidConfig

    try:
        service.run()
    except (InvalidConfig, InvalidConnectorConfig) as error:
        raise CommandFailed(str(error)) from None
    except ConnectFailed as error:
        raise Unreachable(str(error), hint="`strandline doctor` says whether the cluster is well") from None


def _start_again() -> None:
    """Put a new program in the place of this process: nothing that a connector has left stays."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
