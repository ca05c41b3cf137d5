"""A real broker in a child process, or a cluster of them, for tests, notebooks and demos.

    with strandline.embedded() as log:
        producer = confluent_kafka.Producer({"bootstrap.servers": log.bootstrap})

    with strandline.embedded(nodes=3) as cluster:
        cluster.kill(cluster.leader_of("orders", 0))

It is a process of its own, not a thread, because one interpreter lock cannot serve a broker's loop and a busy test; so
it can also be killed as a power cut would end it, and started again on the same port and directory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar, overload

from strandline.local.node_process import BrokerFailed, NodeProcess

if TYPE_CHECKING:
    from strandline.local.embedded_cluster import EmbeddedCluster
    from strandline.local.virtual_clock import VirtualClockBroker

__all__ = ["BrokerFailed", "EmbeddedBroker", "embedded"]


class EmbeddedBroker(NodeProcess):
    """One broker process, and the data directory and port that stay when it is killed and started again."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        stderr: BinaryIO,
    ) -> None:
        super().__init__(stderr=stderr, environ=environ)
        self.data = data
        self.port = port
        self.properties = dict(properties or {})

    def arguments(self) -> Sequence[str]:
        words = ["strandline.broker", "--data", str(self.data), "--listen", self.bootstrap]
        for name, value in ({"http.listener": "off"} | self.properties).items():
            words += ["-X", f"{name}={value}"]
        return words

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Create a topic. Configs are Kafka's with underscores for dots: `segment_bytes=65536`."""
        create_topic(self.bootstrap, name, partitions, 1, configs)


B = TypeVar("B", bound=EmbeddedBroker)


def create_topic(
    bootstrap: str, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | int]
) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
    admin.create_topics([topic])[name].result()


# mypy objects that 1 is an int, too; the first overload that fits is the one that counts.
@overload
def embedded(  # type: ignore[overload-overlap]
    *,
    nodes: Literal[1] = 1,
    clock: Literal["real"] = "real",
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[EmbeddedBroker]: ...


@overload
def embedded(
    *,
    clock: Literal["virtual"],
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[VirtualClockBroker]: ...


@overload
def embedded(
    *,
    nodes: int,
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[EmbeddedCluster]: ...


def embedded(
    *,
    nodes: int = 1,
    clock: str = "real",
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[EmbeddedBroker] | contextlib.AbstractContextManager[EmbeddedCluster]:
    """Run a real broker for the length of a `with` block, by default on a free port and in a directory that is removed.

    `nodes=3` gives a cluster of three instead, at `port` and the ports after it. `data` keeps the log in a directory of
    yours; `properties` are Kafka's broker properties; `environ` is added to the child's environment. With
    `clock="virtual"` the broker's time moves only by `clock.advance`. If the block raises, the exception gets the end
    of the broker's standard error as a note.
    """
    if clock not in ("real", "virtual"):
        raise ValueError(f"the clock is 'real' or 'virtual', not {clock!r}")
    if nodes != 1:
        if clock == "virtual":
            raise ValueError(
                "a virtual clock is for one broker: in a cluster every leap would end the sessions between the nodes"
            )
        return _several(nodes, data, port, properties, environ)
    if clock == "real":
        return _one(EmbeddedBroker, data, port, properties, environ)
    from strandline.local.virtual_clock import VirtualClockBroker

    return _one(VirtualClockBroker, data, port, properties, environ)


@contextlib.contextmanager
def _one(
    kind: type[B],
    data: str | os.PathLike[str] | None,
    port: int,
    properties: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
) -> Iterator[B]:
    with contextlib.ExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        stderr = stack.enter_context(tempfile.TemporaryFile())
        broker = kind(Path(data), port=port, properties=properties, environ=environ, stderr=stderr)
        stack.callback(broker.kill)
        broker.start()
        try:
            yield broker
        except BaseException as error:
            text = broker.stderr_text().strip()
            if text:
                error.add_note(f"standard error of the embedded broker:\n{text}")
            raise
        broker.stop()


@contextlib.contextmanager
def _several(
    nodes: int,
    data: str | os.PathLike[str] | None,
    port: int,
    properties: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
) -> Iterator[EmbeddedCluster]:
    from strandline.local.embedded_cluster import EmbeddedCluster

    with contextlib.ExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        cluster = EmbeddedCluster(Path(data), nodes, port=port, properties=properties, environ=environ, files=stack)
        stack.callback(cluster.kill_all)
        cluster.start_all()
        try:
            yield cluster
        except BaseException as error:
            for node_id, text in cluster.stderr_texts().items():
                error.add_note(f"standard error of node {node_id}:\n{text}")
            raise
        cluster.stop_all()
