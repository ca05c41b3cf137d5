"""Producers that do not keep to the rules: they invent their ids, and use each for one batch only."""

from __future__ import annotations

from tests.simulator.clients.producer import Batch, Lane, SimProducer

from strandline.testing.history import Outcome

INVENTED_FROM: int = 1 << 40
"""Ids from here on are given to no producer of a run."""


class SimStranger(SimProducer):
    """A producer whose every batch has a producer id that no broker gave out, and begins at any sequence."""

    def _ask_for_id(self) -> None:
        if self.producer_id < 0 and self.known:
            self.producer_id = INVENTED_FROM + self.random.getrandbits(40)
            self.producer_epoch = self.random.randrange(5)
            for lane in self.lanes:
                lane.next_sequence = self.random.randrange(1000)

    def _record(self, lane: Lane, batch: Batch, outcome: Outcome, base_offset: int | None, error: str) -> None:
        """Keep no history: what becomes of a stranger's records is not judged."""

    def _acknowledge(self, lane: Lane, batch: Batch, base_offset: int) -> None:
        super()._acknowledge(lane, batch, base_offset)
        if self.is_idle:
            self.start_over("another id")
