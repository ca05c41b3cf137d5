"""What happens to the groups of a node: remembered for `group history`, and told in the node's log.

Anybody who can connect can make a group rebalance as often as it likes. So the log takes so many lines a second, says
how many it left out, and goes on; the history has its own limits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from strandline.coordinators.groups.events import Tell
from strandline.coordinators.groups.history.group_history import GroupHistory
from strandline.observability.log_lines import fields
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.groups")

LINES_PER_SECOND_MAX: Final = 20


class GroupLog:
    def __init__(self, runtime: Runtime) -> None:
        self.history = GroupHistory(since_ms=runtime.now_ms())
        self._runtime = runtime
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def interrupt(self, group_ids: Iterable[str]) -> None:
        """This node does not coordinate these groups any more."""
        now_ms = self._runtime.now_ms()
        for group_id in group_ids:
            self.history.interrupt(group_id, now_ms)

    def tell(self, told: Tell) -> None:
        second = int(self._runtime.monotonic())
        if second != self._second:
            if self._left_out:
                log.info("... and %d more about groups", self._left_out, extra=fields(left_out=self._left_out))
            self._second, self._lines, self._left_out = second, 0, 0
        if self._lines >= LINES_PER_SECOND_MAX:
            self._left_out += 1
            return
        self._lines += 1
        log.info("%s", told.sentence, extra=fields(**told.facts))
