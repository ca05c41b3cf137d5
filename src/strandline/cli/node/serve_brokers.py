"""`strandline serve --brokers n`: the cores of one machine, a broker process for each.

Without a quorum elsewhere the processes are a cluster of their own: the first one, or the first three, are controllers
too. Where the configuration names the controllers of a cluster, all of them are brokers of that cluster; their
directories are then formatted beforehand. Replicas are spread over hosts before processes, so several such machines can
form one cluster.
"""

from __future__ import annotations

import os
from pathlib import Path

from strandline.cli.common.failures import CommandFailed, Interrupted, interrupted_by_sigterm
from strandline.cli.common.output import Output
from strandline.config.listeners import ListenerAddress, parse_listeners
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.local.local_cluster import HOST, NodePlace, lay_out
from strandline.local.node_process import BrokerFailed
from strandline.local.supervision import SupervisedNode, start_all, stop_all, watch_over


def run_brokers(
    brokers: int, *, data: Path | None, listen: str | None, config: Path | None, overrides: dict[str, str]
) -> int:
    """Run them until SIGTERM or Ctrl-C; prints `ready HOST:PORT,HOST:PORT,...` when all are ready."""
    given = dict(overrides)
    if data is not None:
        given["log.dirs"] = str(data)
    if listen is not None:
        given["listeners"] = f"PLAINTEXT://{listen}"
    try:
        content = config.read_text() if config is not None else ""
        settings = BrokerConfig.load(content, given, os.environ, file_name=str(config or "server.properties"))
        running = [
            SupervisedNode(place.node_id, properties, stderr=None) for place, properties in _places(settings, brokers)
        ]
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None
    output = Output()
    with interrupted_by_sigterm():
        try:
            start_all(running)
            output.line(f"ready {','.join(node.bootstrap for node in running)}")
            output.flush()
            watch_over(running, restart=True, tell=lambda node, what: output.talk(f"node {node.node_id} {what}"))
        except BrokerFailed as error:
            raise CommandFailed(str(error), hint="the other nodes were stopped, too") from None
        except Interrupted:
            # The way to end it.
            pass
        finally:
            failures = stop_all(running)
            for failure in failures:
                output.talk(failure)
    return 1 if failures else 0


def _places(settings: BrokerConfig, brokers: int) -> list[tuple[NodePlace, dict[str, str]]]:
    """Return each process with its own properties, beside the file that all of them share."""
    root = Path(settings.log_dirs[0])
    listener, *others = settings.client_listeners()
    if others or settings.tls_listeners():
        raise InvalidConfig(
            f"listeners={','.join(settings.listeners)} has several listeners for clients, or TLS, and several brokers "
            "of one file have one plain listener each; expected that, or a file and a process for each node"
        )
    if not listener.port:
        raise InvalidConfig("several brokers need a port to count from; expected --listen HOST:PORT")
    shared = dict(settings.given)
    if settings.names_other_voters() or not settings.is_controller:
        places = [
            NodePlace(
                settings.node_id + number,
                listener.host,
                listener.port + number,
                None,
                _directory(root, settings, number),
            )
            for number in range(brokers)
        ]
        properties = [_of_broker(settings, place) for place in places]
    else:
        cluster = lay_out(root, brokers, port=listener.port, host=listener.host or HOST)
        places = list(cluster.places)
        properties = [cluster.properties(place) for place in places]
        if "http.listener" not in shared:
            for each in properties[:1]:
                # The default steps back where it is taken, so only one of them should try.
                del each["http.listener"]
    return [
        (place, shared | own | _shifted(settings, number))
        for number, (place, own) in enumerate(zip(places, properties, strict=True))
    ]


def _directory(root: Path, settings: BrokerConfig, number: int) -> Path:
    return root / f"node-{settings.node_id + number}"


def _of_broker(settings: BrokerConfig, place: NodePlace) -> dict[str, str]:
    name = settings.client_listeners()[0].name
    return {
        "node.id": str(place.node_id),
        "process.roles": "broker",
        "log.dirs": str(place.directory),
        "listeners": _text(ListenerAddress(name, place.host, place.port)),
    }


def _shifted(settings: BrokerConfig, number: int) -> dict[str, str]:
    """Addresses that each process needs for itself: the port counts up from the one that was given."""
    shifted = {}
    if settings.advertised_listeners:
        advertised = parse_listeners(",".join(settings.advertised_listeners), name="advertised.listeners")
        clients = [_with_port(each, number) for each in advertised if each in settings.advertised()]
        shifted["advertised.listeners"] = ",".join(_text(each) for each in clients)
    if "http.listener" in settings.given and settings.http_listener != "off":
        host, _, port = settings.http_listener.rpartition(":")
        if port.isdigit() and int(port):
            shifted["http.listener"] = f"{host}:{int(port) + number}"
    return shifted


def _with_port(listener: ListenerAddress, number: int) -> ListenerAddress:
    return listener._replace(port=listener.port + number if listener.port else 0)


def _text(listener: ListenerAddress) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
