"""One ShareFetch in progress: its acknowledgements are stored, and records are acquired or waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.codec.shares import (
    STRICT_MODE,
    ShareFetchRequest,
    SharePartitionRequest,
    SharePartitionResponse,
    encode_share_fetch,
)
from strandline.coordinators.shares.delivery.share_sessions import PartitionName, ShareSession
from strandline.errors import ErrorCode, StrandlineError, error_code
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.shares.share_requests import Acknowledging, Result, served_partition, with_leaders
from strandline.handlers.support.context import BrokerServices, Exchange
from strandline.handlers.support.fetching.fetch_attempt import COLD_LOOKUPS_MAX
from strandline.handlers.support.services import ServedSharePartition, SessionConnection
from strandline.log.cold_reads import ColdReads
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.segment import ColdRead
from strandline.runtime.runtime import TimerHandle

API_KEY: Final = 78


class ShareFetchAttempt:
    """The ShareFetch of a member."""

    __slots__ = (
        "_acknowledging",
        "_cold_lookups",
        "_fetched",
        "_guard",
        "_is_abandoned",
        "_is_fetch_done",
        "_is_over",
        "_node",
        "_request",
        "_session",
        "_timer",
        "_waits_at",
        "exchange",
    )

    def __init__(
        self,
        node: BrokerServices,
        exchange: Exchange,
        session: ShareSession[SessionConnection],
        request: ShareFetchRequest,
        guard: ClientGuard | None,
    ) -> None:
        self._node = node
        self.exchange = exchange
        self._session = session
        self._request = request
        self._guard = guard
        self._acknowledging = Acknowledging()
        self._fetched: dict[PartitionName, Result] = {}
        """Partitions with records or an error."""
        self._waits_at: list[ServedSharePartition] = []
        self._timer: TimerHandle | None = None
        self._cold_lookups = 0
        self._is_over = request.wait_ms_max <= 0
        """Whether the time to wait is over."""
        self._is_fetch_done = False
        self._is_abandoned = False

    def acknowledge(self, asked: Sequence[SharePartitionRequest]) -> None:
        """Begin to store acknowledgements; the answer waits for them."""
        if asked:
            group_id, member_id = self._session.group_id, self._session.member_id
            self._acknowledging.start(
                self._node,
                group_id,
                member_id,
                asked,
                self._guard,
                self._maybe_answer,
                is_renewal=self._request.is_renewal,
            )

    # Fetching

    def look(self) -> None:
        """Acquire what there is. If that is nothing, wait."""
        self._leave_lines()
        if self._session.is_ended:
            # What it acquired would not be released, because the session was ended before.
            self.end_fetch()
            return
        served = self._served()
        try:
            goes_on = self._collect([each for each in served if each.can_serve()])
        except ColdRead:
            self._look_up_in_thread(served)
            return
        if self._fetched or self._is_over:
            self.end_fetch()
            return
        self._waits_at = served
        for each in served:
            each.readers[self] = None
        if goes_on:
            self._node.runtime.call_soon(self.look_again)
        if self._timer is None:
            self._timer = self._node.runtime.call_later(self._request.wait_ms_max / 1000, self._on_timeout)

    def look_again(self) -> None:
        """Look in a later turn, unless the request was answered or its client has closed the connection."""
        if not self._is_fetch_done:
            self.look()

    def on_refused(self, name: PartitionName, code: ErrorCode) -> None:
        """Learn that a partition cannot be served."""
        if not self._is_fetch_done:
            self._fetched[name] = SharePartitionResponse(*name, error_code=code)

    def _served(self) -> list[ServedSharePartition]:
        """Return the share partitions of the session; those that this broker does not serve are refused."""
        served: list[ServedSharePartition] = []
        for name in self._session.rotated():
            if name in self._fetched:
                continue
            found = served_partition(self._node, self._session.group_id, name, self._guard)
            if isinstance(found, ErrorCode):
                self.on_refused(name, found)
            else:
                served.append(found)
        return served

    def _collect(self, ready: list[ServedSharePartition]) -> bool:
        """Acquire records of these partitions, if there are enough bytes or the wait is over.

        Return whether to look again at once, because there was only what no member gets.
        """
        if not ready or self._request.records_max <= 0:
            return False
        read: list[tuple[ServedSharePartition, LogSlice]] = []
        try:
            size = self._read(ready, read)
            if size < min(self._request.size_bytes_min, self._size_bytes_max) and not self._is_over:
                return False
            return self._acquire(read)
        finally:
            for _, records in read:
                records.release()

    @property
    def _size_bytes_max(self) -> int:
        return min(self._request.size_bytes_max, self._node.config.fetch_max_bytes)

    def _read(self, ready: list[ServedSharePartition], read: list[tuple[ServedSharePartition, LogSlice]]) -> int:
        """Find the batches to acquire from; each partition may use the same part of the bytes. Return their size."""
        size = 0
        for each in ready:
            try:
                records = each.read(
                    self._size_bytes_max // len(ready), at_least_one=not read, may_block=self._may_block
                )
            except (StrandlineError, OSError) as error:
                self.on_refused((each.partition.topic_id.bytes, each.partition.index), ErrorCode(error_code(error)))
                continue
            if records is not None:
                read.append((each, records))
                size += records.size_bytes
        return size

    def _acquire(self, read: list[tuple[ServedSharePartition, LogSlice]]) -> bool:
        request, left, goes_on = self._request, self._request.records_max, False
        for each, records in read:
            try:
                cut, taken = each.acquire(
                    self._session.member_id,
                    records,
                    records_max=left,
                    batch_size=request.batch_size,
                    is_strict=request.acquire_mode == STRICT_MODE,
                    may_block=self._may_block,
                )
            except ColdRead:
                if self._fetched:
                    # What was acquired is sent at once; the next request comes for this partition.
                    break
                raise
            if cut is None:
                goes_on = True
                continue
            name = each.partition.topic_id.bytes, each.partition.index
            self._fetched[name] = SharePartitionResponse(*name, records=cut, acquired=taken)
            each.partition.bytes_out += cut.size_bytes
            left -= sum(last - first + 1 for first, last, _ in taken)
            if left <= 0:
                break
        return goes_on

    # Waiting

    @property
    def _may_block(self) -> bool:
        return self._cold_lookups > COLD_LOOKUPS_MAX

    def _on_timeout(self) -> None:
        self._timer = None
        self._is_over = True
        self.look_again()

    def _leave_lines(self) -> None:
        for each in self._waits_at:
            each.readers.pop(self, None)
        self._waits_at = []

    def _look_up_in_thread(self, served: list[ServedSharePartition]) -> None:
        """Have a thread read what is cold into the page cache, and check what was not read before; then look again."""
        self._cold_lookups += 1
        cold = ColdReads()
        for each in served:
            if each.is_loaded and each.partition.log.failure is None:
                cold.add(each.partition.log, each.next_offset, with_aborted=True)
        cold.begin(self._node.runtime, self._size_bytes_max, self._on_read)

    def _on_read(self, error: BaseException | None) -> None:
        if error is not None:
            # The next look meets the same fault on the loop and answers with its code.
            self._cold_lookups = COLD_LOOKUPS_MAX + 1
        self.look_again()

    # Ending

    def end_fetch(self) -> None:
        """Fetch no more, and answer as soon as the acknowledgements are stored."""
        self._is_fetch_done = True
        self._leave_lines()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._maybe_answer()

    def _maybe_answer(self) -> None:
        if not self._is_fetch_done or self._acknowledging.pending or self._is_abandoned:
            return
        self.exchange.on_abandoned = None
        for name, (code, message) in self._acknowledging.refused.items():
            fetched: Result = self._fetched.get(name) or SharePartitionResponse(*name)
            self._fetched[name] = fetched._replace(acknowledge_error_code=code, acknowledge_error_message=message)
        size = 0
        for result in self._fetched.values():
            size += 0 if result.records is None else result.records.size_bytes
            for failed in (result.error_code, result.acknowledge_error_code):
                if failed:
                    self._node.count_error(API_KEY, failed)
        connection = self.exchange.connection
        throttle_ms = 0
        if connection.quota is not None:
            # What is acquired must be sent; a client above its quota waits before its next request.
            throttle_ms, _ = connection.quota.charge_fetch(connection, size)
        results, endpoints = with_leaders(self._node, list(self._fetched.values()), connection.listener_name)
        lock_timeout_ms = self._node.share_delivery.settings_of(self._session.group_id).lock_duration_ms
        self.exchange.reply_pieces(
            *encode_share_fetch(results, lock_timeout_ms=lock_timeout_ms, endpoints=endpoints, throttle_ms=throttle_ms)
        )

    def abandon(self) -> None:
        """Stop, because the client has closed its connection. The end of its session releases what it acquired."""
        self._is_abandoned = True
        self.exchange.on_abandoned = None
        self.end_fetch()
        for result in self._fetched.values():
            if result.records is not None:
                result.records.release()
