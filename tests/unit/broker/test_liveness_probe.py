"""What a knock at a real address finds: a process that listens, a machine that says there is none, or nothing."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from strandline.broker.kraft.liveness_probe import LivenessProbe
from strandline.broker.network.network import SocketNetwork, SocketOptions
from strandline.quorum.controller.brokers.broker_liveness import ProbeOutcome
from strandline.runtime.runtime import LoopRuntime

WITHIN_S = 30.0


def knocked(host: str, port: int) -> ProbeOutcome:
    loop = asyncio.new_event_loop()
    runtime = LoopRuntime(loop)
    environment: Any = SimpleNamespace(runtime=runtime, network=SocketNetwork(runtime, SocketOptions(10, -1, -1)))
    told: asyncio.Future[ProbeOutcome] = loop.create_future()

    async def knock() -> ProbeOutcome:
        LivenessProbe(environment, (host, port), told.set_result)
        return await asyncio.wait_for(told, WITHIN_S)

    try:
        return loop.run_until_complete(knock())
    finally:
        runtime.close()
        loop.close()


def test_who_listens_answers_though_it_accepts_nobody() -> None:
    """A process that stands still: its kernel answers for it."""
    with socket.create_server(("127.0.0.1", 0)) as hung:
        assert knocked("127.0.0.1", hung.getsockname()[1]) is ProbeOutcome.ANSWERED


def test_an_address_that_nobody_listens_at_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ended:
        port = ended.getsockname()[1]
    assert knocked("127.0.0.1", port) is ProbeOutcome.REFUSED


def test_the_next_life_of_a_broker_refuses_until_it_opens_its_door() -> None:
    """It takes its address while it starts, and listens when it is registered: so it does not hide that the former
    life is gone."""
    with socket.socket() as starting:
        starting.bind(("127.0.0.1", 0))
        assert knocked("127.0.0.1", starting.getsockname()[1]) is ProbeOutcome.REFUSED


def test_what_is_no_address_says_nothing() -> None:
    assert knocked("no-such-name.invalid", 9) is ProbeOutcome.UNKNOWN


def test_a_refusal_by_some_addresses_of_a_name_is_none() -> None:
    """The broker may be at the one that did not answer."""
    loop = asyncio.new_event_loop()
    runtime = LoopRuntime(loop)
    network = SocketNetwork(runtime, SocketOptions(10, -1, -1))
    with socket.create_server(("127.0.0.1", 0)) as ended:
        port = ended.getsockname()[1]
    over: asyncio.Future[None] = loop.create_future()
    receiver: Any = SimpleNamespace(on_closed=lambda: over.set_result(None))
    outgoing = network.connect("127.0.0.1", port, receiver)
    # The broadcast address takes no connection: the system says so at once, and not that it was refused.
    outgoing._addresses.append((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("255.255.255.255", port)))
    loop.run_until_complete(asyncio.wait_for(over, WITHIN_S))
    assert outgoing.failure
    assert not outgoing.is_refused
    runtime.close()
    loop.close()
