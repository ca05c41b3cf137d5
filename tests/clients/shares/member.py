"""A share consumer of any client, in a process that takes the commands of `tests/java/Sharing.java`."""

from __future__ import annotations

from typing import Any

from tests.clients.program_driver import ProgramDriver

POLLS_MAX = 120
QUIET_MS = 500
"""How long a member waits before a story says that nothing comes."""

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
IMPLICIT = {"share.acknowledgement.mode": "implicit"}


class ShareMember:
    """One member of a share group; it acknowledges explicitly unless the settings say otherwise."""

    def __init__(self, program: ProgramDriver, group: str, topic: str, settings: dict[str, str] | None = None) -> None:
        self.program = program
        self._number = program.ask("share", group=group, topics=[topic], settings=EXPLICIT | (settings or {}))

    def poll(self, timeout_ms: int = 500) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.program.ask("share_poll", consumer=self._number, timeout_ms=timeout_ms)
        return found

    def poll_some(self) -> list[dict[str, Any]]:
        for _ in range(POLLS_MAX):
            if found := self.poll():
                return found
        raise AssertionError("nothing came")

    def is_idle(self) -> bool:
        return self.poll(QUIET_MS) == []

    def acknowledge(self, types: str) -> None:
        """Acknowledge what the last poll returned.

        `types` has a letter for each record; the last one also counts for the rest: a accept, l release, j reject,
        n renew, - nothing yet.
        """
        self.program.ask("share_acknowledge", consumer=self._number, types=types)

    def commit(self) -> dict[str, str | None]:
        """Send the acknowledgements; the error of each partition, or None."""
        outcome: dict[str, str | None] = self.program.ask("share_commit", consumer=self._number)
        return outcome

    def settle(self, types: str) -> None:
        """Acknowledge, and see that the broker stored it."""
        self.acknowledge(types)
        assert set(self.commit().values()) <= {None}

    def close(self) -> None:
        self.program.ask("share_close", consumer=self._number)


def deliveries(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The value and the delivery count of each record."""
    return [(each["value"], each["count"]) for each in found]


def values(found: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in found]
