"""A member of a share group: it acquires records, acknowledges each by itself, and renews its locks.

librdkafka's share consumer speaks version 1 only: it cannot renew a lock, nor ask for a number of records, and wants
every record of a poll acknowledged before the next one. A worker needs all three, so this is our own. It is for one
thread; `share_membership` keeps it in the group meanwhile. It speaks to any broker with share groups.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Final

from strandline.client.cluster_client import ClientSettings
from strandline.client.connection import BrokerConnection, readable
from strandline.client.failures import ClientFailed, ClusterFailed
from strandline.client.security import PLAINTEXT, ClientSecurity, NotAdmitted
from strandline.client.shares.share_membership import AssignedPartition, PartitionKey, ShareMembership
from strandline.client.shares.share_session import BrokerShareSession, SharedRecord
from strandline.client.shares.shared_records import GAP, RELEASE, RENEW, acquired_records
from strandline.codec.messages.share_acknowledge_response import ShareAcknowledgeResponse
from strandline.codec.messages.share_fetch_response import PartitionData, ShareFetchResponse
from strandline.errors import Disconnected, ErrorCode, PeerError, TimedOut, UnsupportedVersion, named

log = logging.getLogger("strandline.client.shares")

_FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
_REQUEST_TIMEOUT_S: Final = 5.0
"""Much shorter than a lock, because no other broker is served while the consumer waits for a connection."""
_LINGER_S: Final = 0.1
"""How long an acknowledgement waits for a fetch that can take it along."""
_PAUSE_S: Final = 0.1
_CLOSE_S: Final = 5.0

_PASSING: Final = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""The broker could not store an acknowledgement. The member still holds the records, so it tries again."""
_REFUSED: Final = frozenset(
    (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    )
)

OnLost = Callable[[SharedRecord, str], object]


class ShareConsumer:
    """A consumer in a share group. Closing it releases what it holds."""

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        topics: Sequence[str],
        *,
        client_id: str = "strandline-queue",
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.member_id = str(uuid.uuid4())
        self._group_id = group_id
        self.on_lost: OnLost = _ignore
        """Called with each record whose acknowledgement was not stored, and the reason."""
        self._settings = ClientSettings(
            bootstrap,
            client_id,
            request_timeout_s=_REQUEST_TIMEOUT_S,
            api_timeout_s=_REQUEST_TIMEOUT_S,
            security=security,
        )
        self._membership = ShareMembership(self._settings, group_id, topics, self.member_id)
        self._sessions: dict[int, BrokerShareSession] = {}
        self._wait_s: dict[int, float] = {}
        """The wait of the fetch that is under way at each broker; brokers that were asked something else are absent."""
        self._topic_names: dict[uuid.UUID, str] = {}
        self._not_before: dict[int, float] = {}
        """When a broker that could not be reached is tried again."""

    # Records

    def poll(self, *, records_max: int, wait_s: float, topics: Collection[str] | None = None) -> list[SharedRecord]:
        """Return records as soon as there are some; an empty list when the wait is over.

        Acknowledgements are sent on the way. With `records_max` 0 nothing else is asked for. `topics` leaves
        out others. The first call joins the group.
        """
        self._membership.start()
        wanted = self._wanted(topics) if records_max > 0 else {}
        for leader_id in wanted:
            self._open(leader_id, next(iter(wanted[leader_id])))
        share = max(1, records_max // max(1, len(wanted)))
        for leader_id, session in list(self._sessions.items()):
            if not session.connection.is_waiting:
                keys = [(each.topic_id, each.partition) for each in wanted.get(leader_id, ())]
                self._ask(leader_id, session, keys, share, wait_s)
        return self._collect(wait_s)

    def acknowledge(self, record: SharedRecord, kind: int) -> None:
        """Note that a record is accepted, released or rejected. It is sent with the next poll."""
        session = record.session
        if session.is_over or not session.holds(record):
            self.on_lost(record, "the connection that held it was lost")
        else:
            session.put(record.place, record.offset, kind)

    def renew(self, record: SharedRecord) -> None:
        """Have the lock of a record renewed with the next poll, if the broker can."""
        session = record.session
        if session.renews and not session.is_over and session.holds(record):
            session.put(record.place, record.offset, RENEW)

    def leave(self) -> None:
        """Leave the group, so that others are assigned its partitions. What is held can still be acknowledged."""
        self._membership.leave()

    def close(self) -> None:
        """Send what is acknowledged, release everything else, and leave the group."""
        until = time.monotonic() + _CLOSE_S
        try:
            while any(s.pending or s.singles or s.connection.is_waiting for s in self._sessions.values()):
                if time.monotonic() > until:
                    break
                # Records that a fetch brings now are released with the session.
                self.poll(records_max=0, wait_s=_LINGER_S)
            for leader_id, session in list(self._sessions.items()):
                self._finish(leader_id, session)
        except ClientFailed as error:
            log.info("share consumer of group %s: %s", self._group_id, error)
        finally:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()
            self._membership.leave()
            self._membership.join()

    def _finish(self, leader_id: int, session: BrokerShareSession) -> None:
        try:
            if session.is_open and not session.connection.is_waiting:
                session.send_acknowledge(is_last=True)
                self._on_acknowledged(session, session.receive_acknowledge())
        except (Disconnected, TimedOut) as error:
            self._lose(leader_id, session, str(error))

    # Sessions

    def _wanted(self, topics: Collection[str] | None) -> dict[int, list[AssignedPartition]]:
        """Return the assigned partitions by leader."""
        by_leader: dict[int, list[AssignedPartition]] = {}
        for each in self._membership.partitions.values():
            if topics is None or each.topic in topics:
                by_leader.setdefault(each.leader_id, []).append(each)
            self._topic_names[each.topic_id] = each.topic
        return by_leader

    def _open(self, leader_id: int, led: AssignedPartition) -> None:
        session = self._sessions.get(leader_id)
        if session is not None and session.address != led.address and not session.connection.is_waiting:
            self._lose(leader_id, session, f"broker {leader_id} has another address now")
            session = None
        if session is not None or time.monotonic() < self._not_before.get(leader_id, 0.0):
            return
        try:
            connection = BrokerConnection(
                *led.address,
                client_id=self._settings.client_id,
                timeout_s=_REQUEST_TIMEOUT_S,
                security=self._settings.security,
            )
        except NotAdmitted as error:
            raise ClusterFailed(f"cannot read share group {self._group_id}: {error}") from error
        except (Disconnected, TimedOut) as error:
            log.info("share consumer of group %s: %s", self._group_id, error)
            self._not_before[leader_id] = time.monotonic() + _PAUSE_S
            self._membership.look_up()
            return
        try:
            session = BrokerShareSession(connection, led.address, group_id=self._group_id, member_id=self.member_id)
        except UnsupportedVersion as error:
            connection.close()
            raise ClusterFailed(f"cannot read share group {self._group_id}: {error}") from error
        self._sessions[leader_id] = session

    def _lose(self, leader_id: int, session: BrokerShareSession, reason: str) -> None:
        """End a session whose records the broker has released, or will."""
        log.info("share session of group %s at broker %s is over: %s", self._group_id, leader_id, reason)
        session.close()
        if self._sessions.get(leader_id) is session:
            del self._sessions[leader_id]
        self._wait_s.pop(leader_id, None)
        self._not_before[leader_id] = time.monotonic() + _PAUSE_S
        for acknowledged in (session.sent, session.pending):
            for key, kinds in acknowledged.items():
                for offset, kind in kinds.items():
                    self._tell_lost(session, key, offset, kind, reason)
        for key, offset, kind in session.singles:
            self._tell_lost(session, key, offset, kind, reason)
        session.held.clear()
        self._membership.look_up()

    def _tell_lost(self, session: BrokerShareSession, key: PartitionKey, offset: int, kind: int, reason: str) -> None:
        record = session.held.get(key, {}).pop(offset, None) if kind != RENEW else None
        if record is not None:
            self.on_lost(record, reason)

    # Requests

    def _ask(
        self, leader_id: int, session: BrokerShareSession, keys: list[PartitionKey], records_max: int, wait_s: float
    ) -> None:
        now = time.monotonic()
        if now < session.quiet_until:
            return
        elsewhere = session.pending.keys() - set(keys)
        try:
            if (
                session.singles
                or session.has_renewal()
                or (elsewhere and (not keys or now - session.pending_since > _LINGER_S))
            ):
                session.send_acknowledge()
            elif keys:
                wait_ms = int(wait_s * 1000)
                session.send_fetch(keys, records_max=records_max, wait_ms=wait_ms, size_bytes_max=_FETCH_BYTES_MAX)
                self._wait_s[leader_id] = wait_s
        except (Disconnected, TimedOut) as error:
            self._lose(leader_id, session, str(error))

    def _collect(self, wait_s: float) -> list[SharedRecord]:
        """Wait for an answer. With a wait of 0, wait for all fetches that do not wait themselves."""
        until = time.monotonic() + max(wait_s, _LINGER_S) + _LINGER_S
        records: list[SharedRecord] = []
        while not records:
            waiting = {
                leader_id: session for leader_id, session in self._sessions.items() if session.connection.is_waiting
            }
            if not waiting:
                if wait_s > 0:
                    self._pause(wait_s)
                break
            is_awaited = wait_s > 0 or not all(self._wait_s.get(leader_id) for leader_id in waiting)
            answered = self._answered(waiting, until - time.monotonic() if is_awaited else 0.0)
            for leader_id in answered:
                records += self._receive(leader_id, waiting[leader_id])
            if not answered or wait_s > 0:
                break
        return records

    def _pause(self, wait_s: float) -> None:
        """Wait for an assignment, or for a broker that cannot be reached."""
        if self._membership.partitions:
            time.sleep(min(wait_s, _PAUSE_S))
        else:
            self._membership.wait_partitions(wait_s)

    def _answered(self, waiting: dict[int, BrokerShareSession], timeout_s: float) -> list[int]:
        """Return the brokers whose answer has come. Those that are overdue lose their session."""
        answered = [leader_id for leader_id, session in waiting.items() if session.connection.has_answer]
        if not answered:
            by_descriptor = {session.connection.fileno(): leader_id for leader_id, session in waiting.items()}
            answered = [by_descriptor[each] for each in readable(by_descriptor, max(0.0, timeout_s))]
        now = time.monotonic()
        for leader_id, session in waiting.items():
            allowed_s = self._wait_s.get(leader_id, 0.0) + _REQUEST_TIMEOUT_S
            if leader_id not in answered and now - session.asked_s > allowed_s:
                self._lose(leader_id, session, f"{session.connection.address} did not answer in {allowed_s:g} s")
        return answered

    def _receive(self, leader_id: int, session: BrokerShareSession) -> list[SharedRecord]:
        try:
            if self._wait_s.pop(leader_id, None) is None:
                acknowledged = session.receive_acknowledge()
                if self._is_served(leader_id, session, acknowledged):
                    self._on_acknowledged(session, acknowledged)
                return []
            fetched = session.receive_fetch()
        except (Disconnected, TimedOut) as error:
            self._lose(leader_id, session, str(error))
            return []
        return self._on_fetched(session, fetched) if self._is_served(leader_id, session, fetched) else []

    def _is_served(
        self, leader_id: int, session: BrokerShareSession, answer: ShareFetchResponse | ShareAcknowledgeResponse
    ) -> bool:
        """Return whether the broker served a request. If not, the session is over."""
        code = named(answer.error_code)
        if code in _REFUSED:
            raise ClusterFailed(f"cannot read share group {self._group_id}: {answer.error_message or code.name}")
        if code:
            self._lose(leader_id, session, answer.error_message or code.name)
            return False
        session.quiet_until = time.monotonic() + answer.throttle_time_ms / 1000
        if answer.acquisition_lock_timeout_ms:
            session.lock_s = answer.acquisition_lock_timeout_ms / 1000
        return True

    def _on_fetched(self, session: BrokerShareSession, answer: ShareFetchResponse) -> list[SharedRecord]:
        records: list[SharedRecord] = []
        for topic in answer.responses:
            for each in topic.partitions:
                key = topic.topic_id, each.partition_index
                self._on_outcome(session, key, each.acknowledge_error_code, each.acknowledge_error_message)
                if each.error_code:
                    self._on_refused(session, key, named(each.error_code))
                elif each.acquired_records:
                    records += self._delivered(session, key, each)
        self._on_unanswered(session)
        return records

    def _on_acknowledged(self, session: BrokerShareSession, answer: ShareAcknowledgeResponse) -> None:
        for topic in answer.responses:
            for each in topic.partitions:
                self._on_outcome(session, (topic.topic_id, each.partition_index), each.error_code, each.error_message)
        self._on_unanswered(session)

    def _delivered(self, session: BrokerShareSession, key: PartitionKey, data: PartitionData) -> list[SharedRecord]:
        acquired = [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]
        try:
            found = list(acquired_records(data.records, acquired))
        except PeerError as error:
            # Another replica may have them whole. If none has, the delivery count ends it.
            log.warning("offset %s of %s-%s cannot be read: %s", acquired[0][0], *key, error)
            for first, last, _ in acquired:
                for offset in range(first, last + 1):
                    session.put(key, offset, RELEASE)
            return []
        held = session.held.setdefault(key, {})
        records = []
        for offset, record, count in found:
            if record is None:
                session.put(key, offset, GAP)
            else:
                if offset in held and session.withdraw(key, offset):
                    # Its lock ended before the acknowledgement came, which must not count for this delivery.
                    self.on_lost(held[offset], "its lock ended")
                shared = SharedRecord(self._topic_names.get(key[0], ""), key, record, count, session)
                held[offset] = shared
                records.append(shared)
        return records

    def _on_refused(self, session: BrokerShareSession, key: PartitionKey, code: ErrorCode) -> None:
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            name = self._topic_names.get(key[0], str(key[0]))
            raise ClusterFailed(f"cannot read topic {name} in share group {self._group_id}: {code.name}")
        # A pause, because the broker answers such requests at once.
        session.quiet_until = time.monotonic() + _PAUSE_S
        self._membership.look_up()

    def _on_outcome(self, session: BrokerShareSession, key: PartitionKey, error_code: int, message: str | None) -> None:
        """Take the answer to the acknowledgements of one partition, if there were any in the request."""
        kinds, code = session.sent.pop(key, None), named(error_code)
        if kinds is None:
            return
        if code in _PASSING:
            session.quiet_until = time.monotonic() + _PAUSE_S
            for offset, kind in kinds.items():
                session.put(key, offset, kind)
            return
        if code == ErrorCode.INVALID_RECORD_STATE and len(kinds) > 1:
            # One of them is no longer held, and a broker stores all of a request or nothing.
            session.singles += [(key, offset, kind) for offset, kind in kinds.items()]
            return
        held = session.held.get(key, {})
        for offset, kind in kinds.items():
            # A renewal that fails changes nothing: the lock ends as it would have.
            record = None if kind == RENEW else held.pop(offset, None)
            if code and record is not None:
                self.on_lost(record, message or code.name)

    def _on_unanswered(self, session: BrokerShareSession) -> None:
        """Count acknowledgements that the answer does not mention as lost."""
        for key in list(session.sent):
            self._on_outcome(session, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the broker did not answer for it")


def _ignore(record: SharedRecord, reason: str) -> None:
    """Do nothing: the broker delivers the record again."""
