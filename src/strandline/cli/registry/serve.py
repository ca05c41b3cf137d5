"""`strandline registry serve`: the schema registry, a process beside any Kafka cluster."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, Interrupted, Unreachable, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.service_options import service_settings
from strandline.schemas.records import SCHEMAS_TOPIC

LISTEN_DEFAULT = "127.0.0.1:8081"
GROUP_DEFAULT = "schema-registry"
_OF_THE_SERVICE = ("listeners", "http.", "host.name")
"""How settings of the service begin; others are for its clients of the cluster."""


def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="[https://]HOST:PORT",
            help=f"Where clients connect, {LISTEN_DEFAULT} by default; port 0 takes a free one.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Properties of the service: TLS, users, the cluster."),
    ] = None,
    topic: Annotated[
        str, typer.Option("--topic", metavar="NAME", help="The topic that holds the schemas.")
    ] = SCHEMAS_TOPIC,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="The registries that share the topic and elect a primary."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Serve schemas over Confluent's REST API until SIGTERM or Ctrl-C.

    Prints one line, `ready URL`, when every schema of the topic is known. The topic is made if it is missing. `/livez`
    and `/readyz` say how the process is. Off loopback it needs TLS and the users of the cluster: see --config.
    """
    try:
        from strandline.schemas.registry import RegistrySettings
        from strandline.services.registry.registry_service import RegistryService
        from strandline.services.registry.registry_settings import RegistryServiceSettings
    except ModuleNotFoundError as error:
        hint = "pip install 'strandline[registry]'"
        raise CommandFailed(f"the registry needs a package that is not installed: {error.name}", hint=hint) from None
    from strandline.errors import InvalidConfig
    from strandline.schemas.topic import SchemaTopicFailed

    given = service_settings(config, listen, properties, listen_default=LISTEN_DEFAULT)
    servers = bootstrap if bootstrap != BOOTSTRAP_DEFAULT else given.get("bootstrap.servers", bootstrap)
    of_client = [f"{name}={value}" for name, value in given.items() if not _is_of_service(name)]
    cluster, output = connect(servers, of_client, timeout), Output()
    # Registries of different topics must not elect one another.
    group = group or (GROUP_DEFAULT if topic == SCHEMAS_TOPIC else f"{GROUP_DEFAULT}-{topic}")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")

    def on_ready() -> None:
        output.line(f"ready {service.url}")
        output.flush()

    try:
        settings = RegistryServiceSettings.of(
            given | cluster.properties | {"bootstrap.servers": cluster.bootstrap},
            RegistrySettings(cluster.servers, topic=topic, group=group),
        )
    except InvalidConfig as error:
        raise UsageFailed(str(error), hint="docs/security.md, section HTTP services, has the settings") from None
    try:
        service = RegistryService(settings, on_ready)
    except InvalidConfig as error:
        raise CommandFailed(str(error), hint="if another registry runs there, say --listen with another port") from None
    try:
        service.run()
    except SchemaTopicFailed as error:
        raise Unreachable(str(error), hint="`strandline doctor` says whether the cluster is well") from None
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None
    except (Interrupted, KeyboardInterrupt):
        pass


def _is_of_service(name: str) -> bool:
    return name.startswith(_OF_THE_SERVICE) or name == "bootstrap.servers"
