"""Runs a node whose links to other nodes can be cut, in a process that does not outlive its parent.

    python -m strandline.local.cuttable_node --cut HOST:PORT,... [the arguments of strandline.broker]

`--cut` names addresses that cannot be reached from the start; it may be empty. The parent writes `cut HOST:PORT ...` to
our standard input: links that this node makes to these addresses carry nothing from then on, and all others are whole.
The answer is a line `cut` on standard output. When the parent is gone, so are we.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection

from strandline.broker import main as broker
from strandline.broker.network.network import SocketNetwork
from strandline.config.listeners import parse_address
from strandline.config.node_config import BrokerConfig
from strandline.local.bound_child import follow_parent
from strandline.local.cut_network import Address, CutNetwork
from strandline.runtime.runtime import LoopRuntime


class Links:
    """The commands of the parent, from the thread that reads them to the loop that obeys."""

    def __init__(self, cut: Collection[Address]) -> None:
        self._cut_at_start = cut
        self._network: CutNetwork | None = None
        self._runtime: LoopRuntime | None = None
        self._is_there = threading.Event()

    def network(self, runtime: LoopRuntime, config: BrokerConfig) -> CutNetwork:
        self._network = CutNetwork(SocketNetwork.of(runtime, config))
        self._network.cut(self._cut_at_start)
        self._runtime = runtime
        self._is_there.set()
        return self._network

    def follow(self, stdin_fd: int) -> None:
        """Obey the parent, and return when it is gone."""
        with os.fdopen(stdin_fd, closefd=False) as commands:
            for line in commands:
                word, *addresses = line.split()
                assert word == "cut", line
                self._is_there.wait()
                assert self._runtime is not None
                self._runtime.loop.call_soon_threadsafe(self._cut, [parse_address(each) for each in addresses])

    def _cut(self, addresses: Collection[Address]) -> None:
        assert self._network is not None
        self._network.cut(addresses)
        print("cut", flush=True)


def _follow(links: Links) -> None:
    links.follow(0)
    follow_parent(0)


def main() -> int:
    option, addresses, *arguments = sys.argv[1:]
    assert option == "--cut", "usage: --cut HOST:PORT,... and the arguments of strandline.broker"
    links = Links([parse_address(each) for each in addresses.split(",") if each])
    # The thread sleeps in read(2) without the interpreter lock, so it costs the node nothing.
    threading.Thread(target=_follow, args=(links,), name="follow-parent", daemon=True).start()
    return broker.main(arguments, network_of=links.network)


if __name__ == "__main__":
    sys.exit(main())
