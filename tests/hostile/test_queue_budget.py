"""`queued.max.request.bytes`: more requests under way than memory was set aside for."""

from __future__ import annotations

import threading

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import ROUTES, Peer, answer_of, request
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes
from tests.hostile.silent_wire import Wire
from tests.hostile.stage import stage

from strandline.broker.network import connection_limits
from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher

BUDGET_BYTES = 4 * MIB
PEERS = 300
VALUE_BYTES = 1_000_000


def test_memory_is_bounded_and_every_request_completes() -> None:
    with stage({"target": 1}, properties={"queued.max.request.bytes": str(BUDGET_BYTES)}) as log:
        pid = log.pid
        whole = request(produce("target", batch([b"x" * VALUE_BYTES])), 9)
        half = len(whole) // 2
        before = resident_bytes(pid)
        forget_peak(pid)
        peers = [Peer(log.port, timeout_s=60) for _ in range(PEERS)]
        # Every peer has its first half under way before anyone sends the second, 150 MB in all.
        both = threading.Barrier(PEERS)
        failures: list[BaseException] = []

        def send(peer: Peer) -> None:
            try:
                peer.socket.settimeout(0.5)
                sent = 0
                try:
                    while sent < half:
                        sent += peer.socket.send(whole[sent:half])
                except TimeoutError:
                    pass  # The broker reads no further: that is what the budget is for.
                both.wait(60)
                peer.socket.settimeout(60)
                peer.send(whole[sent:])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=send, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        offsets = set()
        for peer in peers:
            result = answer_of(ROUTES[0], 9, peer.receive_answer()).responses[0].partition_responses[0]
            assert result.error_code == 0
            offsets.add(result.base_offset)
            peer.close()
        assert offsets == set(range(PEERS))
        grown = peak_resident_bytes(pid) - before
        print(f"{PEERS} requests of {VALUE_BYTES} bytes, {BUDGET_BYTES / MIB:.0f} MiB for them: {grown / MIB:.1f} MiB")
        assert grown < BUDGET_BYTES + 16 * MIB


def crowded(count: int) -> tuple[Dispatcher, list[Connection], list[Wire]]:
    """Connections that each have sent 100 bytes of a request of 1,000, where memory is for 250."""
    dispatcher = Dispatcher(None, {}, frame_size_max=10_000, inbox_bytes_max=250)  # type: ignore[arg-type]
    wires = [Wire() for _ in range(count)]
    connections = [Connection(dispatcher, wire) for wire in wires]  # type: ignore[arg-type]
    for connection in connections:
        dispatcher.limits.welcome(connection)
        connection.receive(memoryview(bytearray((1000).to_bytes(4, "big") + bytes(96))))
    return dispatcher, connections, wires


def test_who_is_silent_while_all_others_wait_is_hung_up_on() -> None:
    dispatcher, _, wires = crowded(5)
    # The third went beyond the budget and may go on, alone; those after it wait.
    assert [wire.reading for wire in wires] == [True, True, True, False, False]
    for _ in range(connection_limits.FAVOUR_SILENT_S_MAX):
        dispatcher.limits.ticks += 1
        dispatcher.limits.close_stalled()
    assert not any(wire.closed for wire in wires)
    dispatcher.limits.ticks += 1
    dispatcher.limits.close_stalled()
    assert [wire.closed for wire in wires] == [False, False, True, False, False]
    # Now one of the others has the turn, and its own time.
    assert wires[3].reading
    dispatcher.limits.ticks += connection_limits.FAVOUR_SILENT_S_MAX
    dispatcher.limits.close_stalled()
    assert not wires[3].closed


def test_who_sends_a_byte_at_a_time_while_all_others_wait_is_hung_up_on() -> None:
    dispatcher, connections, wires = crowded(5)
    # These are first requests, and their own deadline comes at the same time.
    dispatcher.limits.deadlines.first_request_timeout_ms = -1
    for _ in range(connection_limits.FAVOUR_S_MAX):
        dispatcher.limits.ticks += 1
        connections[2].receive(memoryview(bytearray(1)))
        dispatcher.limits.close_stalled()
    assert not any(wire.closed for wire in wires)
    dispatcher.limits.ticks += 1
    connections[2].receive(memoryview(bytearray(1)))
    dispatcher.limits.close_stalled()
    assert [wire.closed for wire in wires] == [False, False, True, False, False]
    assert wires[3].reading


@pytest.mark.parametrize("gone", range(5))
def test_whoever_leaves_the_others_go_on(gone: int) -> None:
    _, connections, wires = crowded(5)
    left = [number for number in range(5) if number != gone]
    connections[gone].on_closed()
    for number in (*left, *left):
        # Whoever has to wait is never the only one left: somebody can always go on.
        alive = [wires[each] for each in left if not connections[each].closed]
        assert not alive or any(wire.reading for wire in alive)
        connections[number].on_closed()
    assert connections[0].dispatcher.limits.inbox_bytes == 0
