"""The simulated world itself: it lets happen what real machines let happen, and the same seed is the same run."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.stage import stage
from tests.simulator.run import NotAlive
from tests.simulator.world.cluster import SimCluster, SimNode
from tests.simulator.world.disk import SimDisk
from tests.simulator.world.loop import SimLoop
from tests.simulator.world.nemesis import Nemesis, NemesisOptions
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime
from tests.simulator.world.transport import SimTransport

from strandline.errors import DiskFailed
from strandline.ids import TopicPartition
from strandline.log.segment.log_slice import LogSlice

DATA = Path("data")


class Peer:
    """Either end of a connection: keeps what it was told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces: list[bytes] = []
        self.views: list[memoryview] = []
        self.is_connected = False
        self.closed = 0
        self.drained = 0
        self.transport: SimTransport | None = None

    def on_connected(self) -> None:
        self.is_connected = True

    def receive(self, view: memoryview) -> None:
        self.received += view
        self.pieces.append(bytes(view))
        self.views.append(view)

    def on_congested(self) -> None:
        pass

    def on_drained(self) -> None:
        self.drained += 1

    def on_closed(self) -> None:
        self.closed += 1


class Pair:
    """A client and a server on two machines, connected."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop)
        self.client_runtime = SimRuntime(SimHost(self.loop, "client"), 1)
        self.server_runtime = SimRuntime(SimHost(self.loop, "server"), 1)
        self.client, self.server = Peer(), Peer()
        listening = self.network.of(self.server_runtime).listen("server", 9092, self._accept)
        listening.open()
        self.transport = self.network.of(self.client_runtime).connect("server", 9092, self.client)
        self.loop.run_until(1.0)
        assert self.client.is_connected

    def _accept(self, transport: SimTransport) -> Peer:
        self.server.transport = transport
        return self.server


def test_events_come_in_order_and_a_stopped_process_catches_up_while_a_dead_one_does_not() -> None:
    loop = SimLoop(1)
    runtime = SimRuntime(SimHost(loop, "a"), 1)
    happened: list[str] = []
    runtime.call_later(2.0, happened.append, "later")
    runtime.call_soon(happened.append, "soon")
    runtime.call_soon(happened.append, "sooner or later")
    loop.run_until(1.0)
    assert happened == ["soon", "sooner or later"]
    runtime.actor.pause()
    loop.run_until(5.0)
    assert len(happened) == 2
    runtime.actor.resume()
    loop.run_until(6.0)
    assert happened[-1] == "later"
    runtime.call_later(1.0, happened.append, "never")
    runtime.actor.kill()
    loop.run_until(10.0)
    assert happened[-1] == "later"


def test_threads_overtake_each_other() -> None:
    loop = SimLoop(3)
    runtime = SimRuntime(SimHost(loop, "a"), 1)
    ended: list[int | None] = []
    for number in range(20):
        runtime.in_thread(lambda number=number: number, lambda result, _: ended.append(result))
    loop.run_until(1.0)
    assert sorted(ended) == list(range(20))
    assert ended != sorted(ended)


def test_a_stream_keeps_its_order_however_it_is_cut() -> None:
    pair = Pair()
    pair.network.fragment_share = 1.0
    pair.network.spike_share = 0.3
    sent = b""
    for number in range(50):
        data = bytes([number]) * (number + 1)
        pair.transport.send(data)
        sent += data
    pair.loop.run_until(60.0)
    assert pair.server.received == sent
    assert len(pair.server.pieces) > 50


def test_a_view_is_worthless_after_the_callback() -> None:
    pair = Pair()
    pair.transport.send(b"precious")
    pair.loop.run_until(2.0)
    assert pair.server.pieces == [b"precious"]
    assert bytes(pair.server.views[0]) != b"precious"


def test_a_blocked_way_is_silence_then_everything_comes_or_the_sender_gives_up() -> None:
    pair = Pair()
    pair.network.block("client", "server")
    pair.transport.send(b"one")
    pair.loop.run_until(4.0)
    assert pair.server.received == b""
    assert pair.server.transport is not None
    pair.server.transport.send(b"the way back is open")
    pair.loop.run_until(4.5)
    assert pair.client.received == b"the way back is open"
    pair.network.unblock("client", "server")
    pair.loop.run_until(5.0)
    assert pair.server.received == b"one"
    pair.network.block("client", "server")
    pair.transport.send(b"two")
    pair.loop.run_until(60.0)
    assert pair.client.closed == 1
    # The other end was never told, and is half open.
    assert pair.server.closed == 0
    pair.network.heal()
    pair.server.transport.send(b"anybody there?")
    pair.loop.run_until(61.0)
    assert pair.server.closed == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_dies_hangs_up_and_a_machine_without_power_does_not(seed: int) -> None:
    pair = Pair(seed)
    pair.server_runtime.actor.kill()
    pair.network.process_died(pair.server_runtime)
    pair.loop.run_until(2.0)
    assert pair.client.closed == 1
    pair = Pair(seed)
    pair.server_runtime.actor.kill()
    pair.network.power_cut(pair.server_runtime)
    pair.transport.send(b"hello?")
    pair.loop.run_until(3.0)
    assert pair.client.closed == 0
    # Back with power, the machine knows nothing of the connection, and says so.
    pair.network.of(SimRuntime(SimHost(pair.loop, "server"), 2))
    pair.loop.run_until(4.0)
    assert pair.client.closed == 1


def test_nobody_listening_refuses_and_a_slow_reader_holds_the_writer_back() -> None:
    pair = Pair()
    late = Peer()
    refused = pair.network.of(pair.client_runtime).connect("server", 1, late)
    pair.loop.run_until(2.0)
    assert (late.closed, refused.failure) == (1, "connection refused")
    pair.network.window_bytes = 100
    assert pair.server.transport is not None
    pair.server.transport.pause()
    pair.transport.send(b"x" * 1000)
    pair.loop.run_until(3.0)
    assert pair.transport.is_congested
    pair.server.transport.resume()
    pair.loop.run_until(4.0)
    assert len(pair.server.received) == 1000
    assert (pair.client.drained, pair.transport.is_congested) == (1, False)


class HeldSegment:
    """A file that counts its readers."""

    def __init__(self, content: bytes) -> None:
        self.path = DATA / "a"
        self.held = 0
        self.file_of_it = disk_with(content).open(self.path)

    def file(self) -> Any:
        return self.file_of_it

    def retain(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1
        assert self.held >= 0


def test_what_a_slow_reader_has_not_taken_of_a_slice_stays_in_its_file() -> None:
    pair = Pair()
    pair.network.window_bytes = 100
    assert pair.server.transport is not None
    pair.server.transport.pause()
    content = bytes(range(250)) * 40
    held: Any = HeldSegment(content)
    pair.transport.send_pieces([b"head", LogSlice(held, 0, len(content)), b"tail"])
    pair.loop.run_until(3.0)
    assert pair.transport.is_congested
    assert (pair.transport.unsent_bytes, held.held) == (len(b"tail"), 1)
    pair.server.transport.resume()
    pair.loop.run_until(60.0)
    assert pair.server.received == b"head" + content + b"tail"
    assert held.held == 0
    # A file that is cut meanwhile cannot give what was told: the answer is broken off.
    pair.server.transport.pause()
    pair.transport.send_pieces([b"head", LogSlice(held, 0, len(content)), b"tail"])
    pair.loop.run_until(61.0)
    held.file().truncate(500)
    pair.server.transport.resume()
    pair.loop.run_until(62.0)
    assert (pair.client.closed, pair.server.closed, held.held) == (1, 1, 0)


# Disks


def disk_with(content: bytes, seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_directory(DATA)
    file = disk.open(DATA / "a", create=True)
    file.write_at(0, content)
    file.datasync()
    disk.sync_directory(DATA)
    disk.sync_directory(Path("."))
    return disk


@pytest.mark.parametrize("seed", range(30))
def test_what_is_synced_survives_and_of_the_rest_a_beginning(seed: int) -> None:
    disk = disk_with(b"safe", seed)
    file = disk.open(DATA / "a")
    file.write_at(4, b"unsafe")
    file.write_at(10, b"at all")
    disk.power_cut()
    content = disk.read_whole(DATA / "a")
    assert b"safeunsafeat all".startswith(content)
    assert content.startswith(b"safe")


def test_all_ends_of_unsynced_writes_are_met() -> None:
    found = set()
    for seed in range(200):
        disk = disk_with(b"", seed)
        disk.open(DATA / "a").write_at(0, b"abcd")
        disk.power_cut()
        found.add(disk.read_whole(DATA / "a"))
    assert found == {b"", b"a", b"ab", b"abc", b"abcd"}


def test_a_name_is_lost_unless_its_directory_was_synced() -> None:
    kept = 0
    for seed in range(50):
        disk = disk_with(b"old", seed)
        new = disk.open(DATA / "b", create=True)
        new.write_at(0, b"new")
        new.datasync()
        disk.power_cut()
        kept += disk.exists(DATA / "b")
    assert 0 < kept < 50
    disk = disk_with(b"old")
    disk.write_whole(DATA / "a", b"replaced", sync=True)
    disk.power_cut()
    assert disk.read_whole(DATA / "a") == b"replaced"


def test_a_file_replaced_without_sync_is_the_old_one_or_any_part_of_the_new() -> None:
    found = set()
    for seed in range(200):
        disk = disk_with(b"old", seed)
        disk.write_whole(DATA / "a", b"new")
        disk.power_cut()
        found.add(disk.read_whole(DATA / "a"))
    assert {b"old", b"", b"new"} <= found <= {b"old", b"", b"n", b"ne", b"new"}


def test_a_kill_keeps_the_cache() -> None:
    disk = disk_with(b"safe")
    disk.open(DATA / "a").write_at(4, b" and sound")
    disk.process_died()
    assert disk.read_whole(DATA / "a") == b"safe and sound"


def test_a_full_disk_takes_what_fits() -> None:
    disk = disk_with(b"")
    disk.capacity_bytes, disk.used_bytes = 6, 0
    file = disk.open(DATA / "a")
    file.write_at(0, b"1234")
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at(4, b"5678")
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_whole(DATA / "a") == b"123456"


def test_a_failed_sync_forgets_what_it_was_to_write() -> None:
    disk = disk_with(b"safe")
    file = disk.open(DATA / "a")
    file.write_at(4, b" lost")
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    # The second sync succeeds, and saves nothing of the first: trying again is no cure.
    file.datasync()
    assert disk.read_whole(DATA / "a") == b"safe lost"
    disk.power_cut()
    assert disk.read_whole(DATA / "a") == b"safe"


def test_a_locked_directory_is_free_after_a_kill() -> None:
    disk = disk_with(b"")
    disk.lock(DATA)
    with pytest.raises(Exception, match="in use"):
        disk.lock(DATA)
    disk.process_died()
    disk.lock(DATA).release()


# Nodes


def finish_stopping(target: SimNode) -> None:
    assert target.cluster.loop.run_while(lambda: target.is_up, within_s=10.0)


def lose_a_log(target: SimNode) -> None:
    """Leave the node with a log that it could not open: such a node is killed and started when the faults end."""
    assert target.node is not None
    target.node.replicas.offline[TopicPartition("orders", 0)] = DiskFailed("no room")


@pytest.mark.parametrize("end", [finish_stopping, SimNode.kill, SimNode.power_cut, lose_a_log])
def test_a_node_that_was_stopping_runs_again_once_all_is_mended(end: Callable[[SimNode], object]) -> None:
    loop = SimLoop(1)
    cluster = SimCluster(loop, nodes=1)
    nemesis = Nemesis(cluster, NemesisOptions(pause_s=1.0, weights={}, power_cuts_all=False))
    [target] = cluster.nodes.values()
    target.start()
    loop.run_until(5.0)
    target.stop()
    assert target.is_up
    end(target)
    nemesis.heal()
    assert target.is_up
    assert target.lives == 2
    cluster.stop()


def test_a_cluster_that_does_not_recover_is_told_with_the_nodes_that_do_not_run() -> None:
    with stage(1) as play:
        absent = play.followers("orders")[0]
        absent.kill()
        with pytest.raises(NotAlive, match=rf"not in sync.* \(not running: {absent.name}\): orders-0"):
            play.run.recover()
        play.is_over = True
