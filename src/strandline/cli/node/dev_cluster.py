"""`strandline dev --nodes n`: a cluster for development, a process for each node."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.common.conversation import Conversation
from strandline.cli.common.failures import CommandFailed, Interrupted, NotFound, interrupted_by_sigterm
from strandline.cli.common.output import Output
from strandline.cli.node.dev_services import DevServices
from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse
from strandline.errors import InvalidConfig
from strandline.local.local_cluster import LocalCluster, NodePlace, lay_out
from strandline.local.node_process import BrokerFailed
from strandline.local.supervision import (
    LOOK_EVERY_S,
    NODES_MAX,
    SupervisedNode,
    start_all,
    stop_all,
    watch_over,
)

if TYPE_CHECKING:
    from strandline.local.security_kit import SecurityKit

LAST_WORDS_LINES = 5
SUPERVISOR = "dev.pid"
"""While the cluster runs: the process that watches over it."""
REQUEST = "restart-"
"""And the id of a node that is to be started again."""
ASK_S = 1.0
RESTART_WAIT_S = 60.0


def run_cluster(
    output: Output,
    root: Path,
    nodes: int,
    kit: SecurityKit | None,
    *,
    port: int,
    kept: bool,
    restart: bool,
    properties: dict[str, str],
    services: DevServices,
) -> None:
    """Run the nodes until Ctrl-C, or until all have died. A `kit` secures them."""
    try:
        cluster = lay_out(root, nodes, port=port, properties=properties, kit=kit)
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None
    config = None if kit is None else kit.server_properties
    with ExitStack() as files, interrupted_by_sigterm():
        running = []
        for place in cluster.places:
            log = files.enter_context(log_file(place).open("ab+"))
            settings = properties | cluster.properties(place)
            running.append(SupervisedNode(place.node_id, settings, stderr=log, config=config))
        all_died = False
        supervisor = root / SUPERVISOR
        try:
            start_all(running)
            supervisor.write_text(str(os.getpid()))
            services.start(cluster.bootstrap_servers, None if kit is None else kit.command_config)
            _tell_ready(output, cluster, running, services, kept=kept)
            watch_over(
                running,
                restart=restart,
                tell=lambda node, what: _tell(output, node, what),
                asked_for=lambda: _asked_for(root),
            )
            all_died = True
        except BrokerFailed as error:
            raise CommandFailed(str(error), hint="the other nodes were stopped, too") from None
        except Interrupted:
            # The way to end it.
            pass
        finally:
            supervisor.unlink(missing_ok=True)
            services.stop()
            for failure in stop_all(running):
                output.talk(failure)
    if all_died:
        raise CommandFailed("every node died", hint="their last words stand above")


def restart_node(output: Output, node_id: int, *, data: Path | None, port: int) -> None:
    """Have the `dev --nodes` that runs start one of its nodes again, whether it is dead or not."""
    root = _root_at(port) if data is None else data
    if root is None or not (root / SUPERVISOR).is_file():
        where = f"at port {port}" if data is None else f"in {data}"
        raise CommandFailed(
            f"no `strandline dev --nodes` runs {where}", hint="say its --port, or its --data, if it has others"
        )
    if not (root / f"node-{node_id}").is_dir():
        raise NotFound(f"there is no node {node_id} in {root}")
    request = root / f"{REQUEST}{node_id}"
    request.touch()
    deadline = time.monotonic() + RESTART_WAIT_S
    while request.exists():
        if time.monotonic() > deadline:
            request.unlink(missing_ok=True)
            raise CommandFailed("the `strandline dev` that runs these nodes does not answer")
        time.sleep(LOOK_EVERY_S)
    output.line(f"node {node_id} is started again")


def _asked_for(root: Path) -> set[int]:
    asked = set()
    for each in root.glob(f"{REQUEST}*"):
        each.unlink(missing_ok=True)
        asked.add(int(each.name.removeprefix(REQUEST)))
    return asked


def _root_at(port: int) -> Path | None:
    """Return the directory of the cluster with this port, as one of its nodes that lives tells it."""
    for each in range(port, port + NODES_MAX):
        try:
            with Conversation("127.0.0.1", each, ASK_S) as conversation:
                answer = conversation.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
        except CommandFailed:
            continue
        for directory in [] if answer is None else answer.results:
            return Path(directory.log_dir).parent
    return None


def log_file(place: NodePlace) -> Path:
    """Return where a node writes its lines: three of them on one terminal could not be read."""
    return place.directory.with_suffix(".log")


def _tell(output: Output, node: SupervisedNode, what: str) -> None:
    if output.as_json:
        output.json_line({"event": what, "node": node.node_id})
        output.flush()
        return
    output.talk(f"node {node.node_id} {what}")
    for line in node.stderr_text().splitlines()[-LAST_WORDS_LINES:]:
        output.talk(f"  {line}")


def _tell_ready(
    output: Output,
    cluster: LocalCluster,
    running: list[SupervisedNode],
    services: DevServices,
    *,
    kept: bool,
) -> None:
    if output.as_json:
        nodes = [
            {"node": place.node_id, "address": place.address, "data": str(place.directory), "pid": node.pid}
            for place, node in zip(cluster.places, running, strict=True)
        ]
        more = {} if cluster.kit is None else {"command_config": str(cluster.kit.command_config)}
        more |= services.urls()
        output.json_line({"bootstrap": cluster.bootstrap_servers, "data": str(cluster.root), "nodes": nodes, **more})
    else:
        output.line(welcome(cluster, [node.pid for node in running], services.rows(), kept=kept))
    output.flush()


def welcome(cluster: LocalCluster, pids: list[int], services: str, *, kept: bool) -> str:
    """Return what `dev --nodes` prints: where the nodes are, how to use them, and how to hurt them."""
    keeping = "kept" if kept else "removed when this stops; keep it with --data DIR"
    rows = [
        f"  node {place.node_id}     {place.address}  pid {pid}, log {log_file(place)}"
        for place, pid in zip(cluster.places, pids, strict=True)
    ]
    bootstrap = cluster.bootstrap_servers
    nodes = "\n".join(rows)
    if cluster.kit is None:
        title, security, export = "is ready.", "", ""
        first = f"""\
Python (pip install confluent-kafka):

  from confluent_kafka import Producer

  producer = Producer({{"bootstrap.servers": "{bootstrap}", "acks": "all"}})
  producer.produce("greetings", key="en", value="hello")
  producer.flush()"""
        again = f"--port {cluster.places[0].port}"
    else:
        at = cluster.kit.directory
        title = "is ready: TLS, logins by SCRAM-SHA-512, and an authorizer."
        security = f"\n  security   {at} (certificates, and settings of the administrator)"
        first = f"kcat:\n\n  kcat -b {bootstrap} -F {at}/librdkafka.properties -L"
        export = f" STRANDLINE_COMMAND_CONFIG={at}/admin.properties"
        # No node says without a login where its data is.
        again = f"--data {cluster.root}"
    return f"""\
A Strandline cluster of {len(pids)} nodes {title}

  bootstrap  {bootstrap}
  data       {cluster.root} ({keeping}){security}
{services}
{nodes}

{first}

Shell:

  export STRANDLINE_BOOTSTRAP={bootstrap}{export}
  strandline topic create orders --partitions 3
  strandline cluster status --watch
  strandline cluster health

Try it: kill -9 {pids[-1]}, and look at `cluster status`. What was acknowledged is still there.
Start it again: strandline dev restart {len(pids)} {again}

Ctrl-C stops all nodes."""
