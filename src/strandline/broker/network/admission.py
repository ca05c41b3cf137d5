"""Who may connect: how many at one time, how many from one address, and how many in a second.

All of it may change while the node runs (`max.connections` and its kin are dynamic settings): plain attributes, looked
at for each connection that is accepted.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from strandline.config.settings import INT_MAX
from strandline.errors import InvalidConfig

_MAPPED: Final = "::ffff:"


class Admission:
    def __init__(
        self,
        *,
        connections_max: int,
        connections_per_host_max: int = INT_MAX,
        per_host_overrides: Mapping[str, int] | None = None,
        creations_per_s_max: int = INT_MAX,
        connections_room: int = INT_MAX,
    ) -> None:
        self.connections_max = connections_max
        self.connections_per_host_max = connections_per_host_max
        self.per_host_overrides: Mapping[str, int] = per_host_overrides or {}
        self.creations_per_s_max = creations_per_s_max
        self.connections_room = connections_room
        """What descriptors allow, whatever the settings say."""
        self._allowance = 0.0
        self._refilled_at = 0.0

    def is_full_for(self, host: str, connections: int, connections_of_host: int, *, is_exempt: bool = False) -> bool:
        """Return whether one more connection of this host is one too many; `connections_max` may not hold for it."""
        if (connections >= self.connections_max and not is_exempt) or connections >= self.connections_room:
            return True
        of_host_max = self.connections_per_host_max
        if self.per_host_overrides:
            of_host_max = self.per_host_overrides.get(plain_address(host), of_host_max)
        return connections_of_host >= of_host_max

    def delay_s(self, now: float) -> float:
        """How long the next connection has to wait for `max.connection.creation.rate`."""
        rate = self.creations_per_s_max
        if rate >= INT_MAX:
            return 0.0
        # A second's worth may come at once; after a quiet night it is still only a second's worth.
        self._allowance = min(float(rate), self._allowance + (now - self._refilled_at) * rate)
        self._refilled_at = now
        if self._allowance >= 1.0:
            return 0.0
        return (1.0 - self._allowance) / rate if rate else 1.0

    def note_creation(self) -> None:
        self._allowance -= 1.0


def plain_address(host: str) -> str:
    """An IPv4 address as such, also where it came over an IPv6 socket."""
    return host.removeprefix(_MAPPED)


def parse_overrides(entries: Iterable[str]) -> dict[str, int]:
    """`host:count` of `max.connections.per.ip.overrides`; a name stands for each of its addresses.

    Names are looked up here, which may block: at the start, or in a thread.
    """
    overrides: dict[str, int] = {}
    for entry in entries:
        host, _, count = (part.strip() for part in entry.rpartition(":"))
        host = host.strip("[]")
        if not host or not re.fullmatch("[0-9]{1,10}", count):
            raise InvalidConfig(f"max.connections.per.ip.overrides={entry!r} is not allowed; expected host:count")
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise InvalidConfig(f"max.connections.per.ip.overrides: {host!r} is no address: {error}") from error
        for _, _, _, _, address in found:
            overrides[plain_address(str(address[0]))] = int(count)
    return overrides
