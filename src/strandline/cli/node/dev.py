"""`strandline dev`: a node for development, with what to paste printed beside it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.failures import CommandFailed, Interrupted, UsageFailed, interrupted_by_sigterm
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import PORT_DEFAULT, AsJson
from strandline.cli.common.output import Output
from strandline.cli.node.dev_services import DevServices
from strandline.local.supervision import NODES_MAX

if TYPE_CHECKING:
    from strandline.local.security_kit import SecurityKit

STOP_TIMEOUT_S = 30.0


def dev(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[restart N]", help="Start node N of the `dev --nodes` that runs again."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep the logs here. Default: gone when dev stops.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes a free port.")
    ] = PORT_DEFAULT,
    nodes: Annotated[
        int, typer.Option("--nodes", "-n", metavar="N", min=1, max=NODES_MAX, help="A cluster of so many nodes.")
    ] = 1,
    restart: Annotated[bool, typer.Option("--restart", help="With --nodes: start a node that dies again.")] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS, a login and an authorizer; certificates are made.")
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry/--no-registry", help="Run a schema registry beside the nodes.")
    ] = True,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Run the web console beside the nodes.")
    ] = True,
    overrides: Annotated[
        list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="A broker property. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a node for development and print what to paste; Ctrl-C stops it.

    With --nodes 3 it is a cluster, a process for each node, at --port and the ports after it. A node that dies stays
    dead, with a message, unless --restart is given; `dev restart N` starts it again. A schema registry and the web
    console run beside them if `strandline[registry]` and `strandline[console]` are installed, at the ports 8081 and
    8080 or, if these are taken or --port is 0, at others.
    """
    if words:
        _restart(Output(as_json=as_json), words, data, port)
        return
    # A group of one console consumer shall not wait three seconds for others.
    properties = {"group.initial.rebalance.delay.ms": "0"} | key_values(overrides, option="-X")
    for each in range(port, port + nodes) if port else (port,):
        _check_port(each)
    output = Output(as_json=as_json)
    services = DevServices(output, any_port=port == 0, registry=registry, console=console)
    if nodes > 1:
        from strandline.cli.node.dev_cluster import run_cluster

        with _directory(data) as root, _kit(data, secure=secure) as kit:
            run_cluster(
                output,
                root,
                nodes,
                kit,
                port=port,
                kept=data is not None,
                restart=restart,
                properties=properties,
                services=services,
            )
        return
    with _directory(data) as directory, _kit(data, secure=secure) as kit, interrupted_by_sigterm():
        if kit is not None:
            kit.format(directory)
        node = _start(directory, port, properties, kit)
        status = _run(output, node, directory, kit, kept=data is not None, services=services)
    if status:
        raise CommandFailed(f"the node ended with status {status}", hint="its last words stand above")


def _run(
    output: Output,
    node: subprocess.Popen[str],
    directory: Path,
    kit: SecurityKit | None,
    *,
    kept: bool,
    services: DevServices,
) -> int:
    """Print where a node is when it is ready, and return its status when it has ended."""
    try:
        bootstrap = _wait_ready(node)
        services.start(bootstrap, None if kit is None else kit.command_config)
        if output.as_json:
            more = {} if kit is None else {"command_config": str(kit.command_config)}
            more |= services.urls()
            output.json_line({"bootstrap": bootstrap, "data": str(directory), "pid": node.pid, **more})
        elif kit is not None:
            output.line(secured_welcome(bootstrap, directory, kit, services.rows(), kept=kept))
        else:
            output.line(welcome(bootstrap, directory, services.rows(), kept=kept))
        output.flush()
        return node.wait()
    except Interrupted:
        services.stop()
        return _stop(node)
    finally:
        services.stop()
        if node.poll() is None:
            _stop(node)


def _restart(output: Output, words: list[str], data: Path | None, port: int) -> None:
    from strandline.cli.node.dev_cluster import restart_node

    if len(words) != 2 or words[0] != "restart" or not words[1].isdigit():
        raise UsageFailed(f"dev {' '.join(words)} is unknown", hint="`dev restart N` starts node N again")
    restart_node(output, int(words[1]), data=data, port=port)


def welcome(bootstrap: str, directory: Path, services: str, *, kept: bool) -> str:
    """Return what `dev` prints: where the node is, and three ways to use it."""
    keeping = "kept" if kept else "removed when this stops; keep it with --data DIR"
    return f"""\
Strandline is ready.

  bootstrap  {bootstrap}
  data       {directory} ({keeping})
{services}

Python (pip install confluent-kafka):

  from confluent_kafka import Consumer, Producer

  producer = Producer({{"bootstrap.servers": "{bootstrap}"}})
  producer.produce("greetings", key="en", value="hello")
  producer.flush()

  consumer = Consumer({{"bootstrap.servers": "{bootstrap}", "group.id": "me", "auto.offset.reset": "earliest"}})
  consumer.subscribe(["greetings"])
  print(consumer.poll(10).value())

Shell:

  export STRANDLINE_BOOTSTRAP={bootstrap}
  strandline topic create orders --partitions 3
  echo 'o-1:placed' | strandline produce orders --key-separator :
  strandline consume orders --follow --from earliest --format '%p/%o %k %s\\n'

kcat:

  echo 'o-2:placed' | kcat -b {bootstrap} -P -t orders -K :
  kcat -b {bootstrap} -C -t orders -f '%p/%o %k %s\\n'

Ctrl-C stops it."""


def secured_welcome(bootstrap: str, directory: Path, kit: SecurityKit, services: str, *, kept: bool) -> str:
    """Return what `dev --secure` prints: where the node and its files are, and two ways to use it."""
    keeping = "kept" if kept else "removed when this stops; keep it with --data DIR"
    at = kit.directory
    return f"""\
Strandline is ready: TLS, logins by SCRAM-SHA-512, and an authorizer.

  bootstrap  {bootstrap}
  data       {directory} ({keeping})
{services}
  security   {at} (certificates, and settings of the administrator)

Shell:

  export STRANDLINE_BOOTSTRAP={bootstrap} STRANDLINE_COMMAND_CONFIG={at}/admin.properties
  strandline topic create orders --partitions 3
  strandline user create alice --generate
  strandline acl grant --user alice --read orders --group alice

kcat:

  kcat -b {bootstrap} -F {at}/librdkafka.properties -L

Ctrl-C stops it."""


def _start(directory: Path, port: int, properties: dict[str, str], kit: SecurityKit | None) -> subprocess.Popen[str]:
    # A child process, so that whatever this command prints or waits for never holds up the node's loop. It is bound
    # to us: if we are killed, our end of its stdin closes and it stops.
    command = [sys.executable, "-m", "strandline.local.bound_child", "strandline.broker"]
    command += ["--data", str(directory)]
    if kit is None:
        command += ["--listen", f"127.0.0.1:{port}"]
    else:
        # The password is in the file, because arguments are seen in `ps`.
        command += ["--config", str(kit.server_properties), "-X", f"listeners=SASL_SSL://127.0.0.1:{port}"]
    # Several of these may run at once on a machine; who wants metrics asks for them with -X http.listener.
    for key, value in ({"http.listener": "off"} | properties).items():
        command += ["-X", f"{key}={value}"]
    # A session of its own: Ctrl-C reaches us alone, and we stop the node with SIGTERM, once.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _wait_ready(node: subprocess.Popen[str]) -> str:
    assert node.stdout is not None
    line = node.stdout.readline()
    if not line.startswith("ready "):
        raise CommandFailed(
            f"the node did not start (status {node.wait(STOP_TIMEOUT_S)})", hint="its reasons stand above"
        )
    return line.split()[1]


def _stop(node: subprocess.Popen[str]) -> int:
    node.send_signal(signal.SIGTERM)
    try:
        status = node.wait(STOP_TIMEOUT_S)
        # One that has just begun does not hear the signal yet, and dies of it.
        return 0 if status == -signal.SIGTERM else status
    except subprocess.TimeoutExpired:
        node.kill()
        return node.wait()


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandFailed(
                f"port {port} cannot be used: {(error.strerror or str(error)).lower()}",
                hint="choose another with --port; --port 0 takes a free one",
            ) from None


@contextmanager
def _kit(data: Path | None, *, secure: bool) -> Iterator[SecurityKit | None]:
    """Yield the files of a secured node: beside its data, or in a directory that is removed at the end."""
    if not secure:
        yield None
        return
    from strandline.errors import InvalidConfig
    from strandline.local.embedded_broker import kit_directory
    from strandline.local.local_cluster import LAYOUT
    from strandline.local.security_kit import SecurityKit
    from strandline.log.log_directory import META_PROPERTIES

    with _directory(None if data is None else kit_directory(data)) as directory:
        kit = SecurityKit(directory)
        if data is not None and not kit.is_made and any((data / name).exists() for name in (META_PROPERTIES, LAYOUT)):
            raise CommandFailed(
                f"{data} was made without --secure, so it has no administrator who could log in",
                hint="choose another directory with --data",
            )
        try:
            if not kit.is_made:
                kit.make()
        except InvalidConfig as error:
            raise CommandFailed(str(error)) from None
        yield kit


@contextmanager
def _directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    directory = Path(tempfile.mkdtemp(prefix="strandline-dev-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
