"""Keeps the chains of the partitions that this broker leads, and anchors them on the audit topic (decision 0056).

    every interval: committed batches since the last anchor --thread: SHA-256--> hash --> anchor, a line of the audit

Nothing is stored but the anchors. A new leader, or the next process, asks the leader of the audit topic for the last
one, and goes on from there. What is not committed is not hashed, because another leader may not have it. Where the log
does not reach back to the last anchor, or ends before it, the chain begins again, and its line says so.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final
from uuid import UUID

from strandline.broker.audit.audit_log import AuditLog
from strandline.broker.environment import Environment
from strandline.broker.network.routes import AUDIT_ELEMENTS_MAX
from strandline.codec.messages.find_anchors_request import ChainedPartition, FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse
from strandline.errors import StrandlineError
from strandline.handlers.support.context import BrokerServices
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.read_verification import check_ahead
from strandline.log.segment.segment import ColdRead
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC
from strandline.runtime.runtime import TimerHandle
from strandline.security.audit.chain import (
    Anchor,
    ChainedBatch,
    ChainPoints,
    anchor_event,
    chain_start,
    extended,
)

log = logging.getLogger("strandline.audit")

SETTING: Final = "strandline.audit.chain"
READ_BYTES: Final = 256 * 1024
"""Bytes that a thread hashes at a time."""
ANCHOR_BYTES: Final = 64 * 1024 * 1024
"""Bytes after which an anchor is written, although more are to be hashed."""
REPEAT_S: Final = 24 * 60 * 60.0
"""After so long an anchor is written again though nothing was appended, because old lines are deleted."""

Place = tuple[UUID, int]


class LedChain:
    """The chain of one partition in one leader epoch."""

    def __init__(self, partition: Partition, last: Anchor | None, now: float) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.last = last
        """The last anchor that is known."""
        self.begins = last is None or not partition.log_start_offset <= last.offset <= partition.log_end_offset
        if last is None or self.begins:
            # Records are gone where the log ends before its anchor: an election of a replica that was not in sync.
            is_cut = last is not None and last.offset > partition.log_end_offset
            self.offset = partition.high_watermark if is_cut else partition.log_start_offset
            self.value = chain_start(partition.topic_id, partition.index)
        else:
            self.offset, self.value = last.offset, last.value
        self.points = ChainPoints()
        self.unanchored_bytes = 0
        self.anchored_at = now

    @property
    def is_current(self) -> bool:
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    def extend(self, batches: list[ChainedBatch], size_bytes: int) -> None:
        """Take what a thread has hashed."""
        for next_offset, value in batches:
            self.points.add(next_offset, value)
        if batches:
            self.offset, self.value = batches[-1]
        self.unanchored_bytes += size_bytes

    def anchor(self) -> Anchor:
        """Return the anchor for where the chain is."""
        after = -1 if self.last is None else self.last.offset
        place = self.partition.topic_id, self.partition.index
        return Anchor(*place, self.offset, self.value, self.begins, after, self.points.taken())


class ChainKeeper:
    """The chains of this broker, one after the other; `start` looks at them every interval."""

    def __init__(self, environment: Environment, services: BrokerServices, audit: AuditLog) -> None:
        self._environment = environment
        self._runtime = environment.runtime
        self._services = services
        self._audit = audit
        self._chains: dict[Place, LedChain] = {}
        self._waiting: deque[LedChain] = deque()
        self._timer: TimerHandle | None = None
        self._failed: set[Place] = set()
        """Partitions that could not be read, which is logged once."""
        self._is_closed = False

    def start(self) -> None:
        """Look at the chains from now on."""
        if not self._is_closed:
            interval_s = self._environment.config().strandline_audit_chain_interval_ms / 1000
            self._timer = self._runtime.call_later(interval_s, self._look)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # Which

    def _look(self) -> None:
        led = {(each.topic_id, each.index): each for each in self._led()}
        self._chains = {
            place: chain
            for place, chain in self._chains.items()
            if chain.partition is led.get(place) and chain.is_current
        }
        unknown = [each for place, each in led.items() if place not in self._chains][:AUDIT_ELEMENTS_MAX]
        if not unknown:
            self._hash_all()
            return
        request = FindAnchorsRequest(partitions=[ChainedPartition(each.topic_id, each.index) for each in unknown])
        self._audit.find_anchors(request, partial(self._on_found, unknown))

    def _led(self) -> list[Partition]:
        image = self._environment.image()
        found = []
        for (kind, name), overrides in image.configs.items():
            topic = image.topics.get(name) if kind == RESOURCE_TOPIC and SETTING in overrides else None
            for index in range(0 if topic is None else len(topic.partitions)):
                partition = self._services.partition(name, index)
                if partition is not None and partition.is_leader:
                    config = partition.config
                    if config.audit_chain and not config.compact:
                        found.append(partition)
        return found

    def _on_found(self, unknown: list[Partition], answer: FindAnchorsResponse) -> None:
        if self._is_closed:
            return
        if answer.error_code:
            log.debug("the last anchors are not known yet: error code %d", answer.error_code)
        else:
            found = {
                (each.topic_id, each.partition_index): Anchor(
                    each.topic_id, each.partition_index, each.offset, each.hash
                )
                for each in answer.anchors
            }
            for partition in unknown:
                place = partition.topic_id, partition.index
                last = found.get(place)
                if last is not None and partition.high_watermark < last.offset <= partition.log_end_offset:
                    # This leader does not know yet that these records are committed.
                    continue
                self._chains[place] = LedChain(partition, last, self._runtime.monotonic())
        self._hash_all()

    # Hashing

    def _hash_all(self) -> None:
        self._waiting.extend(self._chains.values())
        self._next()

    def _next(self) -> None:
        if self._is_closed:
            return
        if self._waiting:
            # In a later turn, so that many partitions without news are not one long turn.
            self._runtime.call_soon(self._extend, self._waiting.popleft())
        else:
            self.start()

    def _extend(self, chain: LedChain, *, may_block: bool = False) -> None:
        partition = chain.partition
        limit = partition.high_watermark
        if self._is_closed or not chain.is_current:
            self._next()
            return
        if chain.begins and not self._anchor(chain):
            # No later line may say that the chain begins: it would be taken for the place where it does.
            self._next()
            return
        if chain.offset >= limit or chain.unanchored_bytes >= ANCHOR_BYTES:
            self._anchor(chain)
        if chain.offset >= limit:
            self._next()
            return
        try:
            piece = partition.log.read(chain.offset, size_bytes_max=READ_BYTES, limit_offset=limit, may_block=may_block)
        except ColdRead:
            self._warm(chain)
        except (StrandlineError, OSError) as error:
            self._give_up(chain, error)
        else:
            if piece is None:
                self._next()
                return
            work = partial(_hash_slice, piece, chain.value, limit)
            self._runtime.in_thread(work, partial(self._on_hashed, chain, piece))

    def _warm(self, chain: LedChain) -> None:
        """Have a thread read what is cold, and look again."""
        segment = chain.partition.log.segment_of(chain.offset)
        assert segment is not None, "a cold read has a segment"
        segment.retain()

        def done(_: None, error: BaseException | None) -> None:
            segment.release()
            # The loop meets the same error, and logs it.
            self._extend(chain, may_block=True)

        self._runtime.in_thread(partial(check_ahead, segment, chain.offset, READ_BYTES), done)

    def _on_hashed(
        self, chain: LedChain, piece: LogSlice, batches: list[ChainedBatch] | None, error: BaseException | None
    ) -> None:
        piece.release()
        if batches is None or not batches:
            self._give_up(chain, error or StrandlineError("no whole batch was read"))
            return
        self._failed.discard((chain.partition.topic_id, chain.partition.index))
        chain.extend(batches, piece.size_bytes)
        self._extend(chain)

    def _give_up(self, chain: LedChain, error: BaseException) -> None:
        """Leave a chain until the next look: its log may be damaged, or have been trimmed beyond the chain."""
        partition = chain.partition
        place = partition.topic_id, partition.index
        self._chains.pop(place, None)
        if chain.is_current and place not in self._failed:
            self._failed.add(place)
            log.warning(
                "%s-%d cannot be chained from offset %d on: %s",
                partition.topic,
                partition.index,
                chain.offset,
                error,
                extra=fields(reason=str(error)),
            )
        self._next()

    # Anchoring

    def _anchor(self, chain: LedChain) -> bool:
        """Write where the chain is, unless that was written lately. Return False if the line is lost."""
        now = self._runtime.monotonic()
        is_new = chain.last is None or chain.begins or chain.offset != chain.last.offset
        if not is_new and now - chain.anchored_at < REPEAT_S:
            return True
        anchor = chain.anchor()
        if not self._audit.write(anchor_event(anchor, chain.partition.topic, chain.leader_epoch)):
            return False
        chain.last, chain.begins = anchor, False
        chain.anchored_at, chain.unanchored_bytes = now, 0
        return True


def _hash_slice(piece: LogSlice, value: bytes, limit_offset: int) -> list[ChainedBatch]:
    return extended(value, piece.read(), limit_offset)
