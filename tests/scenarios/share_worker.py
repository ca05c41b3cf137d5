"""A worker of a share group by raw requests: it acquires records of one partition, and says what became of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.hostile.peer import Peer
from tests.scenarios.share_coordinator_client import topic_id_of
from tests.scenarios.share_group_client import ShareGroupClient

from strandline.codec.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from strandline.codec.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from strandline.errors import ErrorCode

VERSION = 2


def begin_group(bootstrap: str, group_id: str, topic: str, settings: Mapping[str, str]) -> None:
    """Give a share group its settings, and let it begin at the first record of partition 0."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    ports = [int(bootstrap.rpartition(":")[2])]
    assert ShareGroupClient(ports, group_id).alter(topic, {0: 0}) == {0: ErrorCode.NONE}


class ShareWorker:
    """One member with one connection, on partition 0 of a topic."""

    def __init__(self, port: int, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.member_id = str(uuid.uuid4())
        self._topic_id = topic_id_of([port], topic)
        self._peer = Peer(port)
        self._epoch = 0

    def poll(self, *, records_max: int = 500, wait_ms: int = 500) -> list[tuple[int, int, int]]:
        """Return what was acquired: first and last offset, and delivery count."""
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._next_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records_max,
            batch_size=records_max,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(0, 0, [])])],
        )
        answer = self._peer.ask(request, VERSION)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return [
            (got.first_offset, got.last_offset, got.delivery_count)
            for topic in answer.responses
            for each in topic.partitions
            for got in each.acquired_records
        ]

    def acknowledge(self, first: int, last: int, kind: int) -> ErrorCode:
        batches = [AcknowledgementBatch(first, last, [kind])]
        topics = [AcknowledgeTopic(topic_id=self._topic_id, partitions=[AcknowledgePartition(0, batches)])]
        request = ShareAcknowledgeRequest(
            group_id=self.group_id, member_id=self.member_id, share_session_epoch=self._next_epoch(), topics=topics
        )
        answer: Any = self._peer.ask(request, VERSION)
        if answer.error_code or not answer.responses:
            return ErrorCode(answer.error_code)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def _next_epoch(self) -> int:
        epoch = self._epoch
        self._epoch += 1
        return epoch

    def close(self) -> None:
        self._peer.close()
