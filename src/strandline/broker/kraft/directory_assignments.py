"""Tells the controller where the replicas of this broker are, if the metadata names another directory (KIP-858).

So it is after a disk was replaced, and for replicas that were created before the controller knew the directory. A
broker cannot lead what the controller believes to be in a directory that is gone. All partitions go in one
AssignReplicasToDirs, one request at a time. It is safe to repeat, and it is repeated until the controller has answered.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.kraft.controller_channel import ControllerChannel
from strandline.codec.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from strandline.codec.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from strandline.errors import ErrorCode, named
from strandline.observability.log_lines import fields

ASSIGN_VERSION: Final = 0
ASSIGNMENTS_MAX: Final = 2_000
"""Partitions in one AssignReplicasToDirs; the others come with the next."""
ASK_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.5

log = logging.getLogger("strandline.node")

Where = tuple[uuid.UUID, int]
"""Topic id and partition."""


class DirectoryAssignments:
    def __init__(
        self,
        environment: Environment,
        controller: ControllerChannel,
        *,
        directory_id: uuid.UUID,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._environment = environment
        self._controller = controller
        self._directory_id = directory_id
        self._broker_epoch = broker_epoch
        self._wanted: dict[Where, None] = {}
        self._is_asking = False
        self._is_closed = False

    def on_opened(self, topic_id: uuid.UUID, index: int) -> None:
        """Have the controller know the directory of a replica that is open here, if it does not."""
        if not self._is_known(topic_id, index):
            self._wanted[topic_id, index] = None
            self._ask_soon(0.0)

    def _is_known(self, topic_id: uuid.UUID, index: int) -> bool:
        """Whether the metadata names our directory, or no replica of ours at all."""
        environment = self._environment
        topic = environment.image().topic_by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            return True
        partition = topic.partitions[index]
        held = dict(zip(partition.replicas, partition.directories, strict=False))
        return environment.node_id not in partition.replicas or held.get(environment.node_id) == self._directory_id

    def _ask_soon(self, delay_s: float) -> None:
        if not self._is_asking:
            # Later, so that one request takes all replicas that are opened in a turn of the loop.
            self._is_asking = True
            self._environment.runtime.call_later(delay_s, self._ask)

    def _ask(self) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        # What was deleted, moved away or told by another request in the meantime need not be told.
        self._wanted = {where: None for where in self._wanted if not self._is_known(*where)}
        asked = list(self._wanted)[:ASSIGNMENTS_MAX]
        if not asked:
            return
        self._is_asking = True
        topics: dict[uuid.UUID, TopicData] = {}
        for topic_id, index in asked:
            topics.setdefault(topic_id, TopicData(topic_id)).partitions.append(PartitionData(index))
        environment = self._environment
        self._controller.ask(
            AssignReplicasToDirsRequest(
                environment.node_id, self._broker_epoch(), [DirectoryData(self._directory_id, list(topics.values()))]
            ),
            ASSIGN_VERSION,
            lambda response, error: self._on_answer(asked, response, error),
            timeout_s=ASK_TIMEOUT_S,
        )

    def _on_answer(
        self, asked: list[Where], response: AssignReplicasToDirsResponse | None, error: BaseException | None
    ) -> None:
        self._is_asking = False
        if response is None or response.error_code:
            why = error if response is None else named(response.error_code)
            log.warning("the controller was not told where replicas are, and is told again: %s", why)
            self._ask_soon(RETRY_S)
            return
        taken = [
            (topic.topic_id, each.partition_index)
            for directory in response.directories
            for topic in directory.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        ]
        for where in taken:
            self._wanted.pop(where, None)
        log.info(
            "the controller knows that %d replicas are in directory %s",
            len(taken),
            self._directory_id,
            extra=fields(replicas=len(taken), refused=len(asked) - len(taken)),
        )
        if self._wanted:
            # What was refused is told again, until the metadata says that the replica is not here any more.
            self._ask_soon(0.0 if len(taken) == len(asked) else RETRY_S)

    def close(self) -> None:
        self._is_closed = True
