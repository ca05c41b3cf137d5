"""How long a failed login is held back: longer for a host that fails again and again."""

from __future__ import annotations

from typing import Final

HOSTS_REMEMBERED_MAX: Final = 1000
DOUBLINGS_MAX: Final = 5
"""The delay of a host doubles with each failure, up to 32 times the first one."""
FORGET_S: Final = 60.0
"""A host without a failure for so long begins again."""


class LoginFailures:
    """The failed logins of the last minute by host."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_s = delay_ms / 1000
        self._hosts: dict[str, tuple[int, float]] = {}

    def note(self, host: str, now: float) -> float:
        """Count a failure of `host`; return how many seconds its answer is held back."""
        count, last = self._hosts.pop(host, (0, now))
        count = 0 if now - last > FORGET_S else count
        while len(self._hosts) >= HOSTS_REMEMBERED_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = min(count + 1, DOUBLINGS_MAX), now
        return self._delay_s * float(2**count)
