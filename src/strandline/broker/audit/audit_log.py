"""The audit of a node: from events to lines on the audit topic, in their order, without holding up what caused them.

    record --repeats--> queue --one batch at a time--> leader of the topic: here, or by AppendAudit

What cannot be written is tried again, later each time. Lines that were perhaps written are sent again with the same
numbers, and the leader writes them once. The queue is bounded. Lines beyond it are counted: in a metric, and in a line
that follows when there is room. A node that is killed loses what is in its queue. Readers see that: its next start
writes `started` without a `stopped` before it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from strandline.broker.audit.audit_topic import AuditTopic
from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.codec.messages.append_audit_request import AppendAuditRequest
from strandline.codec.messages.append_audit_response import AppendAuditResponse
from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse
from strandline.errors import ErrorCode, named
from strandline.handlers.support.auto_creation import create_missing
from strandline.handlers.support.context import BrokerServices
from strandline.quorum.controller.topic_names import AUDIT_TOPIC
from strandline.runtime.runtime import TimerHandle
from strandline.security.audit.audit_event import (
    AUDIT,
    LOST,
    STARTED,
    STOPPED,
    AuditEvent,
    CountedEvent,
    audit_line,
)
from strandline.security.audit.repeats import RepeatCounter

log = logging.getLogger("strandline.audit")

LINES_MAX: Final = 10_000
LINES_BYTES_MAX: Final = 8 * 1024 * 1024
"""Lines that wait to be written, and their bytes."""
BATCH_LINES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 256 * 1024
"""Lines of one batch, and bytes after which it is closed."""
LINGER_S: Final = 0.01
"""How long a line waits for others to go with it."""
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 5.0
TIMEOUT_S: Final = 5.0
STOP_S_MAX: Final = 3.0
"""How long a node that stops waits for its last lines to be written."""
WARN_S: Final = 60.0


class AuditLog:
    """The lines of this node that are not written yet."""

    def __init__(self, environment: Environment, services: BrokerServices, topic: AuditTopic) -> None:
        self._environment = environment
        self._runtime = environment.runtime
        self._services = services
        self._topic = topic
        self._repeats = RepeatCounter(environment.config().strandline_audit_repeat_ms)
        self._started_ms = self._runtime.now_ms()
        self._number = 0
        """Lines that were made, so the number of the next one."""
        self._lines: deque[bytes] = deque()
        self.queued_bytes = 0
        self.written = 0
        self.lost = 0
        self._lost_untold = 0
        self._sending = 0
        """Lines at the front of the queue that are being written."""
        self._attempt = 0
        """Answers to earlier attempts are not taken any more."""
        self._failures = 0
        self._warned_at = -WARN_S
        self._sender: TimerHandle | None = None
        self._repeater: TimerHandle | None = None
        self._channels = BrokerChannels(environment, "audit")
        self._on_stopped: Callable[[], object] | None = None
        self._is_closed = False

    @property
    def queued(self) -> int:
        """Lines that wait."""
        return len(self._lines)

    def record(self, event: AuditEvent) -> None:
        """Take an event. Its line follows soon, or it is counted as a repeat."""
        if self._is_closed:
            self.lost += 1
            return
        now_ms = self._runtime.now_ms()
        self._begin()
        for counted in self._repeats.note(event, now_ms):
            self._queue(counted)
        if self._repeater is None:
            self._repeater = self._runtime.call_later(
                self._environment.config().strandline_audit_repeat_ms / 1000, self._write_repeats
            )

    def write(self, event: AuditEvent) -> bool:
        """Take an event that never repeats. Return whether its line follows, or is lost."""
        if self._is_closed:
            return False
        self._begin()
        now_ms, lost = self._runtime.now_ms(), self.lost
        self._queue(CountedEvent(event, 1, now_ms, now_ms))
        return self.lost == lost

    def _begin(self) -> None:
        if not self._number:
            self._queue(CountedEvent(AuditEvent(AUDIT, STARTED), 1, self._started_ms, self._started_ms))

    def find_anchors(self, request: FindAnchorsRequest, then: Callable[[FindAnchorsResponse], object]) -> None:
        """Ask the leader of the topic for the last anchors of partitions, and call `then` once."""
        topic = self._environment.image().topic_by_name(AUDIT_TOPIC)
        leader = -1 if topic is None else topic.partitions[0].leader
        if topic is None:
            then(FindAnchorsResponse())
        elif leader == self._environment.node_id:
            self._topic.find_anchors(request, then)
        elif (channel := self._channels.find(None, leader)) is None:
            then(FindAnchorsResponse(error_code=ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            failed = FindAnchorsResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
            channel.ask(request, 0, lambda answer, _: then(failed if answer is None else answer), timeout_s=TIMEOUT_S)

    def stop(self, on_stopped: Callable[[], object]) -> None:
        """Write what waits, `STOP_S_MAX` at most, and call back."""
        if self._number:
            for counted in self._repeats.rest():
                self._queue(counted)
            now_ms = self._runtime.now_ms()
            self._queue(CountedEvent(AuditEvent(AUDIT, STOPPED), 1, now_ms, now_ms))
        self._on_stopped = on_stopped
        if self._lines:
            self._runtime.call_later(STOP_S_MAX, self._end)
            self._failures = 0
            if self._sender is not None and not self._sending:
                self._sender.cancel()
                self._sender = self._runtime.call_later(0, self._send)
        else:
            self._end()

    # Lines

    def _queue(self, counted: CountedEvent) -> None:
        if len(self._lines) >= LINES_MAX or self.queued_bytes >= LINES_BYTES_MAX:
            self.lost += counted.times
            self._lost_untold += counted.times
            return
        node_id = self._environment.node_id
        line = audit_line(counted, node_id=node_id, line_id=f"{node_id}-{self._started_ms}-{self._number}")
        self._number += 1
        self._lines.append(line)
        self.queued_bytes += len(line)
        if self._sender is None and not self._sending:
            self._sender = self._runtime.call_later(LINGER_S, self._send)

    def _write_repeats(self) -> None:
        now_ms = self._runtime.now_ms()
        for counted in self._repeats.due(now_ms):
            self._queue(counted)
        due_ms = self._repeats.due_ms()
        self._repeater = None
        if due_ms is not None:
            self._repeater = self._runtime.call_later(max(1, due_ms - now_ms) / 1000, self._write_repeats)

    # Writing

    def _send(self) -> None:
        self._sender = None
        if self._sending or not self._lines:
            return
        batch: list[bytes] = []
        size = 0
        for line in self._lines:
            batch.append(line)
            size += len(line)
            if len(batch) >= BATCH_LINES_MAX or size >= BATCH_BYTES_MAX:
                break
        self._sending = len(batch)
        self._attempt += 1
        on_written = partial(self._on_written, self._attempt)
        topic = self._environment.image().topic_by_name(AUDIT_TOPIC)
        if topic is None:
            create_missing(self._services, [AUDIT_TOPIC], lambda _: on_written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        request = AppendAuditRequest(
            node_id=self._environment.node_id,
            started_ms=self._started_ms,
            first_number=self._number - len(self._lines),
            lines=batch,
        )
        leader = topic.partitions[0].leader
        if leader == self._environment.node_id:
            # No connection would tell that the topic was deleted before the lines were committed.
            self._runtime.call_later(TIMEOUT_S, on_written, ErrorCode.REQUEST_TIMED_OUT)
            self._topic.append(request, f"node {leader}", on_written)
            return
        channel = self._channels.find(None, leader)
        if channel is None:
            on_written(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            channel.ask(request, 0, partial(self._on_answer, on_written), timeout_s=TIMEOUT_S)

    def _on_answer(
        self,
        on_written: Callable[[ErrorCode], object],
        response: AppendAuditResponse | None,
        error: BaseException | None,
    ) -> None:
        on_written(ErrorCode.NETWORK_EXCEPTION if response is None else named(response.error_code))

    def _on_written(self, attempt: int, code: ErrorCode) -> None:
        if attempt != self._attempt or not self._sending:
            return
        count, self._sending = self._sending, 0
        if code is not ErrorCode.NONE:
            self._retry(code)
            return
        self._failures = 0
        for _ in range(count):
            self.queued_bytes -= len(self._lines.popleft())
        self.written += count
        if self._lost_untold:
            lost, self._lost_untold = self._lost_untold, 0
            now_ms = self._runtime.now_ms()
            self._queue(CountedEvent(AuditEvent(AUDIT, LOST), lost, now_ms, now_ms))
        if self._lines and self._sender is None:
            self._sender = self._runtime.call_later(0, self._send)
        elif not self._lines and self._on_stopped is not None:
            self._end()

    def _retry(self, code: ErrorCode) -> None:
        """Try again later: the topic may not exist yet, its leader may be gone, its disk may be full."""
        delay_s = min(RETRY_S_MAX, RETRY_S * 2 ** min(self._failures, 10)) * (0.5 + self._runtime.random.random())
        self._failures += 1
        now = self._runtime.monotonic()
        is_expected = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._failures <= 2
        if not is_expected and now - self._warned_at >= WARN_S:
            self._warned_at = now
            log.warning("%d lines wait to be written to %s: %s", len(self._lines), AUDIT_TOPIC, code.name)
        if self._sender is None:
            self._sender = self._runtime.call_later(delay_s, self._send)

    def _end(self) -> None:
        if self._on_stopped is None:
            return
        on_stopped, self._on_stopped = self._on_stopped, None
        self._is_closed, self._sending = True, 0
        for timer in (self._sender, self._repeater):
            if timer is not None:
                timer.cancel()
        self._sender = self._repeater = None
        if self._lines:
            log.error("%d lines could not be written to %s before the node stopped", len(self._lines), AUDIT_TOPIC)
        self._channels.close()
        on_stopped()
