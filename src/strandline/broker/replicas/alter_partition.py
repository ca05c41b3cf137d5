"""Sees to the in-sync sets of the partitions led here: who fell behind, who caught up, and what the controller says.

Only partitions that were written to since everybody was seen to be caught up, or that lack a replica, are looked after,
about once a second; idle ones cost nothing. Proposals of all partitions go in one AlterPartition, one at a time. It is
safe to repeat: the controller compares the partition epoch, and each broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.codec.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.codec.messages.alter_partition_response import AlterPartitionResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import ControllerChannel
from strandline.observability.log_lines import fields
from strandline.partition.leading import look_after, on_proposal_answered
from strandline.partition.partition import Partition
from strandline.replication.in_sync import Proposal
from strandline.runtime.runtime import Runtime, TimerHandle

ALTER_PARTITION_VERSION: Final = 3
LOOK_S: Final = 1.0
"""The longest time between two looks at partitions whose replicas may be behind."""
RETRY_S: Final = 0.2
ASK_TIMEOUT_S: Final = 10.0
PROPOSALS_MAX: Final = 2_000
"""Partitions in one AlterPartition; the others come with the next."""
LOOKS_PER_TURN: Final = 500

log = logging.getLogger("strandline.node")

Proposals = dict[Partition, Proposal]
Changed = dict[tuple[bool, tuple[int, ...]], list[str]]
"""Partitions by whether their in-sync set has shrunk, and what it is now."""
NAMED_MAX: Final = 5
"""Partitions that a line of the log names; a broker that comes or goes changes hundreds in the same way."""


class AlterPartitions:
    """The changes of in-sync sets that this broker, as a leader, proposes to the controller."""

    def __init__(
        self,
        runtime: Runtime,
        channel: Callable[[], ControllerChannel],
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        lag_max_s: float,
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self.lag_max_s = lag_max_s
        self._look_s = min(LOOK_S, lag_max_s / 2)
        self._watched: dict[Partition, None] = {}
        self._looking: TimerHandle | None = None
        self._wanted: Proposals = {}
        self._is_asking = False
        self._is_asking_due = False
        self._is_closed = False
        self.shrinks = self.expands = 0

    def watch(self, partition: Partition) -> None:
        """Replicas of `partition` may be behind. It is looked after until they are not."""
        self._watched[partition] = None
        if self._looking is None and not self._is_closed:
            self._looking = self._runtime.call_later(self._look_s, self._look)

    def forget(self, partition: Partition) -> None:
        self._watched.pop(partition, None)
        self._wanted.pop(partition, None)

    def _look(self) -> None:
        self._look_at_some(list(self._watched))

    def _look_at_some(self, partitions: list[Partition]) -> None:
        """Look after `partitions`, a share in each turn of the loop."""
        now = self._runtime.monotonic()
        for partition in partitions[:LOOKS_PER_TURN]:
            if partition in self._watched and not look_after(partition, now):
                self._watched.pop(partition, None)
        if self._is_closed:
            return
        if len(partitions) > LOOKS_PER_TURN:
            self._runtime.call_soon(self._look_at_some, partitions[LOOKS_PER_TURN:])
        else:
            self._looking = self._runtime.call_later(self._look_s, self._look) if self._watched else None

    # Proposals

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._wanted[partition] = proposal
        if not self._is_asking and not self._is_asking_due:
            # At the end of this turn, so that one request takes all that one fetch of a follower brought about.
            self._is_asking_due = True
            self._runtime.call_soon(self._ask)

    def _ask(self) -> None:
        self._is_asking_due = False
        if self._is_asking or self._is_closed:
            return
        asked: Proposals = {}
        for partition in list(self._wanted)[:PROPOSALS_MAX]:
            asked[partition] = self._wanted.pop(partition)
        if not asked:
            return
        self._is_asking = True
        self._channel().ask(
            self._request(asked),
            ALTER_PARTITION_VERSION,
            lambda response, error: self._on_answer(asked, response, error),
            timeout_s=ASK_TIMEOUT_S,
        )

    def _request(self, asked: Proposals) -> AlterPartitionRequest:
        broker_epoch = self._broker_epoch()
        topics: dict[bytes, TopicData] = {}
        for partition, proposal in asked.items():
            topic = topics.setdefault(partition.topic_id.bytes, TopicData(topic_id=partition.topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=each, broker_epoch=broker_epoch if each == self._node_id else epoch)
                        for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                )
            )
        return AlterPartitionRequest(broker_id=self._node_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def _on_answer(
        self, asked: Proposals, response: AlterPartitionResponse | None, error: BaseException | None
    ) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        if response is None or response.error_code:
            why = error if response is None else ErrorCode(response.error_code).name
            log.warning("in-sync sets were not changed, and are proposed again: %s", why)
            self._again(asked)
            return
        answers = {
            (topic.topic_id.bytes, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        again: Proposals = {}
        changed: Changed = {}
        for partition, proposal in asked.items():
            answer = answers.get((partition.topic_id.bytes, partition.index))
            if answer is None:
                again[partition] = proposal
                continue
            before = partition.in_sync_count
            if on_proposal_answered(
                partition,
                proposal,
                answer.error_code,
                leader_epoch=answer.leader_epoch,
                partition_epoch=answer.partition_epoch,
                isr=answer.isr,
            ):
                again[partition] = proposal
            elif not answer.error_code and partition.is_leader:
                shrinks = partition.in_sync_count < before
                self.shrinks += shrinks
                self.expands += partition.in_sync_count > before
                changed.setdefault((shrinks, tuple(proposal.isr)), []).append(f"{partition.topic}-{partition.index}")
        tell_changed(changed)
        if again:
            self._again(again)
        elif self._wanted:
            self._ask()

    def _again(self, proposals: Proposals) -> None:
        """Propose once more, later: what is of the past by then answers for itself."""
        for partition, proposal in proposals.items():
            in_sync = partition.in_sync
            if in_sync is not None and in_sync.proposed is proposal:
                self._wanted.setdefault(partition, proposal)
        if self._wanted and not self._is_asking_due:
            self._is_asking_due = True
            self._runtime.call_later(RETRY_S, self._ask)

    def close(self) -> None:
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()


def tell_changed(changed: Changed) -> None:
    for (shrinks, isr), names in changed.items():
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        log.log(
            logging.WARNING if shrinks else logging.INFO,
            "%s%s: in sync are now %s",
            ", ".join(names[:NAMED_MAX]),
            more,
            list(isr),
            extra=fields(partitions=len(names), in_sync=list(isr)),
        )
