"""The share session of a member at one broker: its connection, its epoch, and what is to be acknowledged there.

Requests of a session are numbered, so one is under way at a time. What a member holds belongs to the session: a lost
connection releases all of it, and a later session must not acknowledge it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final
from uuid import UUID

from strandline.client.connection import BrokerConnection
from strandline.client.shares.share_membership import PartitionKey
from strandline.client.shares.shared_records import RENEW, acknowledged_ranges
from strandline.codec.columns import Record
from strandline.codec.columns.batch import Header
from strandline.codec.messages import share_acknowledge_request as acknowledging
from strandline.codec.messages import share_fetch_request as fetching
from strandline.codec.messages.share_acknowledge_response import ShareAcknowledgeResponse
from strandline.codec.messages.share_fetch_response import ShareFetchResponse

FINAL_EPOCH: Final = -1
RENEWS_FROM: Final = 2
"""The version of both APIs that renews locks, and acquires no more records than it was asked for."""
RECORD_LIMIT_MODE: Final = 1
LOCK_S_DEFAULT: Final = 30.0
_EPOCH_MAX: Final = 0x7FFFFFFF

Acknowledged = dict[PartitionKey, dict[int, int]]
"""The type of each offset, by partition."""


class SharedRecord:
    """A record that was delivered to a member of a share group."""

    __slots__ = (
        "delivery_count",
        "headers",
        "key",
        "offset",
        "partition",
        "place",
        "session",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self, topic: str, place: PartitionKey, record: Record, delivery_count: int, session: BrokerShareSession
    ) -> None:
        self.topic = topic
        self.partition = place[1]
        self.place = place
        """Topic id and index of the partition."""
        self.offset = record.offset
        self.timestamp_ms = record.timestamp_ms
        self.key = record.key
        self.value = record.value
        self.headers: tuple[Header, ...] = record.headers
        self.delivery_count = delivery_count
        """How often it was delivered, this time included."""
        self.session = session
        """The session that holds it. It cannot be acknowledged in another one."""

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition}@{self.offset} delivery {self.delivery_count}>"


class BrokerShareSession:
    """The session of one member at one broker."""

    def __init__(
        self, connection: BrokerConnection, address: tuple[str, int], *, group_id: str, member_id: str
    ) -> None:
        self.address = address
        self.connection = connection
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = 0
        self._version = connection.version_for(fetching.ShareFetchRequest)
        self._partitions: set[PartitionKey] = set()
        """What the broker knows of the session."""
        self.held: dict[PartitionKey, dict[int, SharedRecord]] = {}
        """Records that were delivered and are not acknowledged."""
        self.pending: dict[PartitionKey, dict[int, int]] = {}
        """Acknowledgements that wait for the next request."""
        self.pending_since = 0.0
        self.singles: list[tuple[PartitionKey, int, int]] = []
        """Acknowledgements that were refused together with others, and are sent one by one."""
        self.sent: Acknowledged = {}
        """Acknowledgements in the request that is under way."""
        self.asked_s = 0.0
        """When that request was sent."""
        self.quiet_until = 0.0
        """The broker asked for no request before."""
        self.lock_s = LOCK_S_DEFAULT
        """How long a lock lasts, as the broker last said."""
        self.is_over = False

    @property
    def is_open(self) -> bool:
        """Return whether the broker knows the session."""
        return self._epoch > 0

    @property
    def renews(self) -> bool:
        return self._version >= RENEWS_FROM

    def put(self, key: PartitionKey, offset: int, kind: int) -> None:
        """Note an acknowledgement for the next request. A renewal does not replace another one."""
        waiting = self.pending.setdefault(key, {})
        if kind != RENEW or offset not in waiting:
            waiting[offset] = kind
        if not self.pending_since:
            self.pending_since = time.monotonic()

    def withdraw(self, key: PartitionKey, offset: int) -> bool:
        """Forget what was to be sent of a record. Return whether that was more than a renewal."""
        kinds = [kind for at, each, kind in self.singles if (at, each) == (key, offset)]
        self.singles = [entry for entry in self.singles if entry[:2] != (key, offset)]
        kinds.append(self.pending.get(key, {}).pop(offset, RENEW))
        return any(kind != RENEW for kind in kinds)

    def holds(self, record: SharedRecord) -> bool:
        return self.held.get(record.place, {}).get(record.offset) is record

    def has_renewal(self) -> bool:
        return any(RENEW in kinds.values() for kinds in self.pending.values())

    def send_fetch(
        self, wanted: Collection[PartitionKey], *, records_max: int, wait_ms: int, size_bytes_max: int
    ) -> None:
        """Ask for records of these partitions; what is pending of them is acknowledged on the way."""
        assert self.is_open or not self.pending, "a new session holds nothing"
        acknowledged = self._take_pending(wanted)
        topics: dict[UUID, fetching.FetchTopic] = {}
        for key in sorted({*acknowledged, *(key for key in wanted if key not in self._partitions)}):
            topic = topics.setdefault(key[0], fetching.FetchTopic(topic_id=key[0]))
            batches = [fetching.AcknowledgementBatch(*each) for each in acknowledged_ranges(acknowledged.get(key, {}))]
            topic.partitions.append(fetching.FetchPartition(partition_index=key[1], acknowledgement_batches=batches))
        forgotten: dict[UUID, fetching.ForgottenTopic] = {}
        for topic_id, index in sorted(self._partitions - set(wanted)):
            forgotten.setdefault(topic_id, fetching.ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self._partitions = set(wanted)
        request = fetching.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size_bytes_max,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=RECORD_LIMIT_MODE,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        self._send(request)

    def send_acknowledge(self, *, is_last: bool = False) -> None:
        """Acknowledge what is pending; the last request of a session ends it."""
        acknowledged = self._take_pending(self.pending)
        topics: dict[UUID, acknowledging.AcknowledgeTopic] = {}
        for key in sorted(acknowledged):
            topic = topics.setdefault(key[0], acknowledging.AcknowledgeTopic(topic_id=key[0]))
            batches = [acknowledging.AcknowledgementBatch(*each) for each in acknowledged_ranges(acknowledged[key])]
            topic.partitions.append(
                acknowledging.AcknowledgePartition(partition_index=key[1], acknowledgement_batches=batches)
            )
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else self._epoch,
            is_renew_ack=any(RENEW in kinds.values() for kinds in acknowledged.values()),
            topics=list(topics.values()),
        )
        self._send(request)

    def receive_fetch(self) -> ShareFetchResponse:
        return self.connection.receive_message(ShareFetchResponse)

    def receive_acknowledge(self) -> ShareAcknowledgeResponse:
        return self.connection.receive_message(ShareAcknowledgeResponse)

    def close(self) -> None:
        self.is_over = True
        self.connection.close()

    def _take_pending(self, keys: Collection[PartitionKey]) -> Acknowledged:
        """Return what the next request acknowledges in these partitions.

        What was refused together with others goes alone, one for each partition.
        """
        taken: dict[PartitionKey, dict[int, int]] = {}
        left = []
        for entry in self.singles:
            key, offset, kind = entry
            if key in taken:
                left.append(entry)
            else:
                taken[key] = {offset: kind}
        self.singles = left
        for key in [key for key in self.pending if key in keys and key not in taken]:
            taken[key] = self.pending.pop(key)
        if not self.pending:
            self.pending_since = 0.0
        self.sent = taken
        return taken

    def _send(self, request: fetching.ShareFetchRequest | acknowledging.ShareAcknowledgeRequest) -> None:
        self.asked_s = time.monotonic()
        self.connection.send(request, self._version)
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
