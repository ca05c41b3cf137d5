"""The local node that is used when no cluster is given, with its data in `.strandline` of this directory.

    .strandline/node            the node's data, which stays
    .strandline/node.json       where the node is reached while it runs, for other commands in this directory
    .strandline/node.log        what it says
    .strandline/checkpoints     of each cluster, by its id

The node ends with the process that started it. A second command in the directory uses the node of the first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from strandline.client.addresses import parse_address
from strandline.client.bootstrap_probe import knock
from strandline.client.security import librdkafka_of
from strandline.errors import WorldError
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import BrokerFailed
from strandline.pipelines.run.stages import in_background

HOME: Final = Path(".strandline")
PORT_DEFAULT: Final = 9092
READY_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 30.0
"""For a node that listens: on a busy machine it may need seconds, and a command must not take another one for it."""
ID_TIMEOUT_S: Final = 15.0

PROPERTIES: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
"""For one node and one machine: fifty partitions each of groups and transactions would only take time to make."""

_quiet = logging.getLogger("strandline.pipelines.librdkafka")


class GroundFailed(WorldError):
    """A failure to find a cluster to run on; one sentence."""


class OwnNode(EmbeddedBroker):
    """A node that Ctrl-C on the terminal does not reach: what writes to it ends first."""

    has_own_session = True


@dataclass
class Ground:
    """A cluster, and the node of it if it is ours. `wait_ready` before it is used, `close` after."""

    bootstrap: str
    home: Path = HOME
    node: OwnNode | None = None
    _log: BinaryIO | None = None
    _is_ready: bool = False

    @property
    def is_own(self) -> bool:
        return self.node is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def wait_ready(self) -> str:
        """Wait until the node answers, and return its address: the usual port if that is free, else another."""
        if self.node is None:
            return self.bootstrap
        try:
            self.node.wait_ready(timeout_s=READY_TIMEOUT_S)
        except BrokerFailed as failure:
            if self.node.port != PORT_DEFAULT or "in use; stop" in str(failure):
                raise self._failure(failure) from None
            self.node.port = 0
            try:
                self.node.start(timeout_s=READY_TIMEOUT_S)
            except BrokerFailed as again:
                raise self._failure(again) from None
        self.bootstrap = self.node.bootstrap
        told = json.dumps({"bootstrap": self.bootstrap, "pid": self.node.pid, "owner": os.getpid()})
        _replace(self.home / "node.json", told)
        self._is_ready = True
        return self.bootstrap

    def close(self) -> None:
        if self.node is not None:
            if self._is_ready:
                (self.home / "node.json").unlink(missing_ok=True)
                # A node that died before has said why, and queries have failed with it.
                with contextlib.suppress(BrokerFailed):
                    self.node.stop()
            self.node.kill()
            self.node = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _failure(self, failure: BrokerFailed) -> GroundFailed:
        if "in use; stop" in str(failure):
            return GroundFailed(
                f"{self.home / 'node'} is in use by a node that does not answer: stop the process that uses it, or "
                "name a cluster with --bootstrap"
            )
        last = str(failure).strip().splitlines()[-1]
        return GroundFailed(
            f"the node did not start ({last}): see {self.home / 'node.log'}, or name a cluster with --bootstrap"
        )


def find_ground(bootstrap: str | None, *, home: Path = HOME) -> Ground:
    """Return the cluster that was named, the node that runs in this directory, or one that is started for this run."""
    if bootstrap is not None:
        return Ground(bootstrap, home)
    if (running := running_node(home)) is not None:
        return Ground(running, home)
    home.mkdir(parents=True, exist_ok=True)
    log = (home / "node.log").open("a+b")
    node = OwnNode(home / "node", port=PORT_DEFAULT, properties=PROPERTIES, stderr=log)
    node.spawn()
    return Ground("", home, node, log)


def has_node(home: Path = HOME) -> bool:
    """Return whether pipelines ran on a node of this directory, so that it may be started for a look."""
    return (home / "node").is_dir()


def running_node(home: Path = HOME) -> str | None:
    """Return the address of the node of this directory, if one runs and answers."""
    try:
        told = json.loads((home / "node.json").read_text())
        bootstrap, pid = str(told["bootstrap"]), int(told["pid"])
        os.kill(pid, 0)
        server = parse_address(bootstrap)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The process may be another one, with the id of a node that was killed.
    if server is None or knock([server], ANSWER_TIMEOUT_S):
        return None
    return bootstrap


def cluster_id_of(bootstrap: str) -> str:
    """Return the id of a cluster, which keeps its checkpoints apart from those of another cluster."""
    kafka = import_module("confluent_kafka")
    found: list[Any] = []
    # In a thread, because signals are not handled while librdkafka waits.
    wait = in_background(lambda: found.append(admin_of(bootstrap).list_topics(timeout=ID_TIMEOUT_S)), "cluster-id")
    try:
        wait()
    except kafka.KafkaException as error:
        raise GroundFailed(f"{bootstrap} does not answer ({error.args[0].str()}): is the cluster well?") from error
    return str(found[0].cluster_id)


def checkpoints_of(bootstrap: str, *, home: Path = HOME) -> str:
    """Return where checkpoints lie unless the user says otherwise."""
    return str((home / "checkpoints" / cluster_id_of(bootstrap)).resolve())


def admin_of(bootstrap: str) -> Any:
    settings: dict[str, Any] = librdkafka_of(bootstrap) | {"client.id": "strandline-pipelines", "log_level": 0}
    return import_module("confluent_kafka.admin").AdminClient(settings, logger=_quiet)


def _replace(path: Path, text: str) -> None:
    """Replace a file in one step, because another command may be reading it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
