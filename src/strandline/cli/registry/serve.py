"""`strandline registry serve`: the schema registry, a process beside any Kafka cluster."""

from __future__ import annotations

import logging
import socket
import sys
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, Interrupted, Unreachable, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output

LISTEN_DEFAULT = "127.0.0.1:8081"
GROUP_DEFAULT = "schema-registry"
TOPIC = "_schemas"


def serve(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")
    ] = LISTEN_DEFAULT,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic that holds the schemas.")] = TOPIC,
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
    and `/readyz` say how the process is. It listens on loopback addresses only, because it knows no users yet.
    """
    host, port = _address(listen)
    _check_loopback(host)
    try:
        from strandline.schemas.registry import RegistrySettings
        from strandline.schemas.server import serve as serve_registry
    except ModuleNotFoundError as error:
        hint = "pip install 'strandline[registry]'"
        raise CommandFailed(f"the registry needs a package that is not installed: {error.name}", hint=hint) from None
    from strandline.schemas.topic import SchemaTopicFailed

    # Registries of different topics must not elect one another.
    group = group or (GROUP_DEFAULT if topic == TOPIC else f"{GROUP_DEFAULT}-{topic}")
    cluster, output = connect(bootstrap, properties, timeout), Output()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    listener = _listener(host, port)
    url = f"http://{host}:{listener.getsockname()[1]}"

    def on_ready() -> None:
        output.line(f"ready {url}")
        output.flush()

    try:
        serve_registry(RegistrySettings(cluster.servers, topic=topic, group=group), listener, on_ready)
    except SchemaTopicFailed as error:
        raise Unreachable(str(error), hint="`strandline doctor` says whether the cluster is well") from None
    except (Interrupted, KeyboardInterrupt):
        pass
    finally:
        listener.close()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65535:
        raise UsageFailed(f"{listen!r} is not HOST:PORT")
    return host, int(port)


def _check_loopback(host: str) -> None:
    import ipaddress

    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise UsageFailed(
            f"the registry knows no users yet, so it does not listen on {host}",
            hint="say --listen 127.0.0.1:8081, and put a server that guards it in front",
        )


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise CommandFailed(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
            hint="another registry may run there; say --listen with another port",
        ) from None
    return listener
