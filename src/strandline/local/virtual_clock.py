"""A broker whose time moves only when the test says so.

with strandline.embedded(clock="virtual") as log:
    log.create_topic("orders", retention_ms=86_400_000)
    ...
    log.clock.advance(days=2)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import STOP_TIMEOUT_S

ADVANCE_TIMEOUT_S: Final = 120.0


class VirtualClock:
    """The clock of one broker. It starts at the time of the machine, and keeps its time while the broker is down."""

    def __init__(self, broker: VirtualClockBroker) -> None:
        self._broker = broker
        self._now = datetime.now(UTC)

    def now(self) -> datetime:
        """Return the broker's time."""
        return self._now

    def advance(
        self, by: timedelta = timedelta(), *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move the clock forward; return when the broker has done what became due."""
        by += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if by < timedelta():
            raise ValueError(f"a clock cannot go back by {-by}")
        if self._broker.running or self._broker.status is not None:
            # One that died by itself is reported by this, too.
            self._broker.command(
                f"advance {by.total_seconds()!r}",
                answer="advanced",
                timeout_s=ADVANCE_TIMEOUT_S,
                before="its clock had moved",
            )
        self._now += by


class VirtualClockBroker(EmbeddedBroker):
    """An embedded broker that runs by its `clock`."""

    module = "strandline.local.clocked_node"

    @cached_property
    def clock(self) -> VirtualClock:
        return VirtualClock(self)

    def arguments(self) -> Sequence[str]:
        _, *words = super().arguments()
        return ["--clock", str(int(self.clock.now().timestamp() * 1000)), *words]

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        if self.running:
            self.command("run", answer="running", timeout_s=timeout_s, before="its clock ran")
        super().stop(timeout_s=timeout_s)
