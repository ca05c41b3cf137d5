"""Connections of a part of a broker to other brokers, each to the address that its broker has now."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from strandline.broker.environment import Environment
from strandline.broker.network.channel import Channel


class BrokerChannels:
    """One connection for each use. What is asked on one connection is answered in its order."""

    def __init__(self, environment: Environment, name: str) -> None:
        """`name` begins the client id."""
        self._environment = environment
        self._client_id = f"{name}-{environment.node_id}"
        self._channels: dict[Hashable, Channel] = {}
        self._is_closed = False

    def find(self, use: Hashable, broker_id: int) -> Channel | None:
        """Return the connection of a use, at this broker; None if that is not registered, or all is closed."""
        environment = self._environment
        address = None if self._is_closed else environment.address_of(broker_id)
        channel = self._channels.get(use)
        if channel is not None and channel.address != address:
            del self._channels[use]
            channel.close()
            channel = None
        if channel is None and address is not None:
            channel = self._channels[use] = Channel(
                environment.runtime,
                environment.network,
                *address,
                client_id=self._client_id,
                login=environment.broker_login,
            )
        return channel

    def keep(self, uses: Iterable[Hashable]) -> None:
        """Close the connections of all other uses."""
        wanted = set(uses)
        for use in [each for each in self._channels if each not in wanted]:
            self._channels.pop(use).close()

    def close(self) -> None:
        """Close all of them, for good."""
        self._is_closed = True
        self.keep(())
