"""Links that are cut: silence in both directions, and an end when they are healed."""

from __future__ import annotations

import dataclasses

from strandline.broker.network.transport import Accept, Listening, OutgoingReceiver, Piece
from strandline.local.cut_network import CutNetwork

A, B = ("a", 1), ("b", 2)


@dataclasses.dataclass
class Wire:
    """A connection of the network beneath: what was sent over it, and how it stands."""

    receiver: OutgoingReceiver
    sent: list[bytes] = dataclasses.field(default_factory=list)
    is_paused: bool = False
    is_closed: bool = False
    is_congested: bool = False
    unsent_bytes: int = 0
    failure: str = ""
    peer_host: str = ""
    peer_port: int = 0

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def send_pieces(self, pieces: list[Piece]) -> None:
        self.sent += [piece for piece in pieces if isinstance(piece, bytes)]

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True


class Wires:
    def __init__(self) -> None:
        self.made: list[Wire] = []

    def listen(self, host: str, port: int, on_accept: Accept, **_: object) -> Listening:
        raise AssertionError("no server listens here")

    def connect(self, host: str, port: int, receiver: OutgoingReceiver, *, tls: object = None) -> Wire:
        self.made.append(Wire(receiver))
        return self.made[-1]


@dataclasses.dataclass
class Heard:
    told: list[str] = dataclasses.field(default_factory=list)

    def receive(self, view: memoryview) -> None:
        self.told.append(bytes(view).decode())

    def on_connected(self) -> None:
        self.told.append("connected")

    def on_congested(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self) -> None:
        self.told.append("closed")


def connected(network: CutNetwork, wires: Wires, address: tuple[str, int]) -> tuple[Heard, Wire]:
    heard = Heard()
    network.connect(*address, heard)
    wires.made[-1].receiver.on_connected()
    return heard, wires.made[-1]


def test_a_link_that_is_whole_passes_everything() -> None:
    wires = Wires()
    network = CutNetwork(wires)
    heard = Heard()
    link = network.connect(*A, heard)
    (wire,) = wires.made
    wire.receiver.on_connected()
    link.send(b"question")
    wire.receiver.receive(memoryview(b"answer"))
    wire.receiver.on_closed()
    assert (wire.sent, heard.told) == ([b"question"], ["connected", "answer", "closed"])


def test_a_cut_link_is_silent_and_others_are_not() -> None:
    wires = Wires()
    network = CutNetwork(wires)
    to_a, to_b = Heard(), Heard()
    link_a, link_b = network.connect(*A, to_a), network.connect(*B, to_b)
    for wire in wires.made:
        wire.receiver.on_connected()
    network.cut([A])
    for link, wire in zip((link_a, link_b), wires.made, strict=True):
        link.send(b"q")
        wire.receiver.receive(memoryview(b"r"))
    assert (to_a.told, wires.made[0].sent, wires.made[0].is_paused) == (["connected"], [], True)
    assert (to_b.told, wires.made[1].sent) == (["connected", "r"], [b"q"])
    wires.made[0].receiver.on_closed()
    assert to_a.told == ["connected"], "the end of the peer is not heard either"


def test_a_connection_that_is_tried_while_cut_never_comes_about() -> None:
    wires = Wires()
    network = CutNetwork(wires)
    network.cut([A])
    heard = Heard()
    link = network.connect(*A, heard)
    assert (wires.made, heard.told) == ([], [])
    link.close()
    network.cut([])
    assert heard.told == [], "a connection that was closed gets no callback"


def test_a_connection_under_way_when_the_link_is_cut_is_not_heard_of() -> None:
    wires = Wires()
    network = CutNetwork(wires)
    heard = Heard()
    network.connect(*A, heard)
    network.cut([A])
    wires.made[0].receiver.on_connected()
    assert heard.told == []


def test_healing_ends_what_stood_still_and_nothing_else() -> None:
    wires = Wires()
    network = CutNetwork(wires)
    (to_a, wire_a), (to_b, wire_b) = connected(network, wires, A), connected(network, wires, B)
    network.cut([A])
    network.cut([])
    assert (to_a.told, wire_a.is_closed) == (["connected", "closed"], True)
    assert (to_b.told, wire_b.is_closed) == (["connected"], False)
    again, _ = connected(network, wires, A)
    assert again.told == ["connected"]
