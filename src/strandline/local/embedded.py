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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from strandline.local.embedded_broker import EmbeddedBroker, kit_directory, made_kit

if TYPE_CHECKING:
    from strandline.local.embedded_cluster import EmbeddedCluster
    from strandline.local.virtual_clock import VirtualClockBroker

B = TypeVar("B", bound=EmbeddedBroker)


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
    secure: bool = False,
) -> contextlib.AbstractContextManager[EmbeddedBroker]: ...


@overload
def embedded(
    *,
    clock: Literal["virtual"],
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    secure: bool = False,
) -> contextlib.AbstractContextManager[VirtualClockBroker]: ...


@overload
def embedded(
    *,
    nodes: int,
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    secure: bool = False,
) -> contextlib.AbstractContextManager[EmbeddedCluster]: ...


def embedded(
    *,
    nodes: int = 1,
    clock: str = "real",
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    secure: bool = False,
) -> contextlib.AbstractContextManager[EmbeddedBroker] | contextlib.AbstractContextManager[EmbeddedCluster]:
    """Run a real broker for the length of a `with` block, by default on a free port and in a directory that is removed.

    `nodes=3` gives a cluster of three instead, at `port` and the ports after it. `data` keeps the log in a directory of
    yours; `properties` are Kafka's broker properties; `environ` is added to the child's environment. With
    `clock="virtual"` the broker's time moves only by `clock.advance`. With `secure=True` it speaks TLS, wants a login
    and has an authorizer; `client_config` has what clients need. If the block raises, the exception gets the end of the
    broker's standard error as a note.
    """
    if clock not in ("real", "virtual"):
        raise ValueError(f"the clock is 'real' or 'virtual', not {clock!r}")
    if nodes != 1:
        if clock == "virtual":
            raise ValueError(
                "a virtual clock is for one broker: in a cluster every leap would end the sessions between the nodes"
            )
        return _several(nodes, data, port, properties, environ, secure=secure)
    if clock == "real":
        return _one(EmbeddedBroker, data, port, properties, environ, secure=secure)
    from strandline.local.virtual_clock import VirtualClockBroker

    return _one(VirtualClockBroker, data, port, properties, environ, secure=secure)


@contextlib.contextmanager
def _one(
    kind: type[B],
    data: str | os.PathLike[str] | None,
    port: int,
    properties: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
    *,
    secure: bool = False,
) -> Iterator[B]:
    with contextlib.ExitStack() as stack:
        kit_at = _kit_at(data, stack) if secure else None
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        stderr = stack.enter_context(tempfile.TemporaryFile())
        broker = kind(Path(data), port=port, properties=properties, environ=environ, stderr=stderr)
        if kit_at is not None:
            broker.secure_with(kit_at)
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
    *,
    secure: bool,
) -> Iterator[EmbeddedCluster]:
    from strandline.local.embedded_cluster import EmbeddedCluster

    with contextlib.ExitStack() as stack:
        kit = made_kit(_kit_at(data, stack)) if secure else None
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        cluster = EmbeddedCluster(
            Path(data), nodes, port=port, properties=properties, environ=environ, files=stack, kit=kit
        )
        stack.callback(cluster.kill_all)
        cluster.start_all()
        try:
            yield cluster
        except BaseException as error:
            for node_id, text in cluster.stderr_texts().items():
                error.add_note(f"standard error of node {node_id}:\n{text}")
            raise
        cluster.stop_all()


def _kit_at(data: str | os.PathLike[str] | None, stack: contextlib.ExitStack) -> Path:
    """Return where the certificates are: beside the data, or in a directory that is removed at the end."""
    if data is not None:
        return kit_directory(Path(data))
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-security-")))
