"""Commits offsets of one group all the time; a second sign ends it. The result is the longest time without a commit.

Whoever does not answer, or says that it is not the coordinator, is left at once, and the others are asked who it is.
"""

from __future__ import annotations

import itertools
import select
import sys
import time

from bench.asking import Question
from bench.clients.turn import finish, task, wait_for_sign
from bench.wire import PeerClosed
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.errors import StrandlineError

INTERVAL_S = 0.01
PATIENCE_S = 0.5
FIRST_COMMIT_S = 60.0
FIND_COORDINATOR_VERSION, COMMIT_VERSION = 3, 8


class Committer:
    def __init__(self, addresses: list[str], group: str, topic: str) -> None:
        self.addresses = itertools.cycle(addresses)
        self.group = group
        self.topic = topic
        self.offset = 0
        self.coordinator: Question | None = None

    def commit(self) -> bool:
        """Whether one more commit was acknowledged."""
        try:
            if self.coordinator is None:
                self.coordinator = self._find()
            if self.coordinator is None:
                return False
            self.offset += 1
            at = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.offset)
            topic = OffsetCommitRequestTopic(name=self.topic, partitions=[at])
            answer = self.coordinator.ask(OffsetCommitRequest(group_id=self.group, topics=[topic]), COMMIT_VERSION)
            if answer.topics[0].partitions[0].error_code == 0:
                return True
        except (OSError, PeerClosed, StrandlineError):
            pass  # It is dead, or hangs: the next one knows who comes after it.
        if self.coordinator is not None:
            self.coordinator.socket.close()
            self.coordinator = None
        return False

    def _find(self) -> Question | None:
        host, _, port = next(self.addresses).partition(":")
        with Question(host, int(port), timeout_s=PATIENCE_S) as peer:
            answer = peer.ask(FindCoordinatorRequest(key=self.group, key_type=0), FIND_COORDINATOR_VERSION)
        if answer.error_code:
            return None
        return Question(answer.host, answer.port, timeout_s=PATIENCE_S)


def main() -> None:
    options = task()
    committer = Committer(options["bootstrap"].split(","), options["group"], options["topic"])
    deadline = time.perf_counter() + FIRST_COMMIT_S
    while not committer.commit():
        if time.perf_counter() > deadline:
            raise SystemExit("the first commit was not acknowledged")
        time.sleep(INTERVAL_S)
    wait_for_sign()
    acknowledged: list[float] = []
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        if committer.commit():
            acknowledged.append(time.perf_counter())
    sys.stdin.readline()
    gaps = [later - earlier for earlier, later in itertools.pairwise(acknowledged)]
    finish(acknowledged=len(acknowledged), silence_s=max(gaps, default=0.0))


if __name__ == "__main__":
    main()
