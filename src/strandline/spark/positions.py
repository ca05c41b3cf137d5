"""How far a streaming query has read, as the committed positions of a consumer group.

Spark keeps its progress in the checkpoint and commits no offsets, so its queries are invisible to everything that
shows lag. A listener commits the end offsets of each batch once Spark has committed the batch, to the group
`spark.<query name, or its id>`; the source's option `kafka.group.id` names another. `strandline.spark.session` installs
it; `watch_positions(spark)` does for a session made in another way. The checkpoint alone decides where a query goes on.

Why a listener: the Python process in which Spark plans a source is told neither the query's id nor its name, and the
source's own `commit` comes only when the next batch is planned, so never for the last one.
Known gap: a session of Spark Connect has no Java side here that knows a source's options; it is refused.
"""

from __future__ import annotations

import atexit
import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from strandline.client.cluster_client import ClientSettings, ClusterClient, host_and_port
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.client.group_positions import BatchNote
from strandline.client.security import PLAINTEXT, ClientSecurity
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.errors import ErrorCode, named
from strandline.spark import shared_environment
from strandline.spark.error_translation import SparkFailed, explain_failure
from strandline.spark.lost_java import is_java_gone
from strandline.spark.source.offset_json import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

FORMAT: Final = "strandline"
GROUP_OPTION: Final = "kafka.group.id"
PREFIX_OPTION: Final = "groupidprefix"
BOOTSTRAP_OPTION: Final = "kafka.bootstrap.servers"
COMMIT_TIMEOUT_S: Final = 5.0
"""For all attempts of one commit, of which each has half of it."""
SETTLE_TIMEOUT_S: Final = 10.0
REACH_TIMEOUT_S: Final = 1.0
REST_S: Final = 5.0
"""After a commit that failed. Spark waits for its listeners when it stops: a dead cluster is not asked every time."""

_BY_NAME_VERSION_MAX: Final = 9
"""From 10 on OffsetCommit names topics by their ids."""
_OF_PARTITIONS: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Place = tuple[str, int]
"""Topic and partition."""

logger = logging.getLogger("strandline.spark.positions")


def group_of(options: Mapping[str, str], query_name: str | None, query_id: str) -> str:
    """The group that shows the positions of a query; `options` are the source's, their names in lower case (pure)."""
    named = options.get(GROUP_OPTION)
    return named or f"{options.get(PREFIX_OPTION) or 'spark'}.{query_name or query_id}"


def positions_of(end_offset: str | None) -> dict[Place, int]:
    """What a batch ends at, from the source's offset as Spark tells it: `{"orders": {"0": 123}}` (pure)."""
    topics = json.loads(end_offset) if end_offset else None
    if not isinstance(topics, dict):
        return {}
    return {(topic, at): int(offset) for (topic, at), offset in from_json(topics).items()}


def begins_of(start_offset: str | None) -> dict[Place, int]:
    """Return what a batch begins at; nothing for the first batch, for which Spark writes `None` (pure)."""
    return positions_of(start_offset) if start_offset and start_offset.startswith("{") else {}


def security_of(options: Mapping[str, str]) -> ClientSecurity:
    """Return how the source connects, which has checked its options when the query began (pure)."""
    return ClientSecurity.spoken({name.removeprefix("kafka."): value for name, value in options.items()})


class Refused(Exception):
    """The group is not ours to move."""


@dataclass
class GroupPositions:
    """One group of one cluster: what it shall be at, and what it is known to be at."""

    bootstrap: str
    group_id: str
    security: ClientSecurity = PLAINTEXT
    wanted: dict[Place, int] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    notes: dict[Place, BatchNote] = field(default_factory=dict)
    """The batch that reached each wanted position; it goes into the metadata of the commit."""

    def reach(self, positions: Mapping[Place, int], notes: Mapping[Place, BatchNote] | None = None) -> None:
        for place, offset in positions.items():
            # A batch that read nothing of a partition did not bring it where it is.
            if notes is not None and place in notes and self.wanted.get(place) != offset:
                self.notes[place] = notes[place]
        self.wanted.update(positions)

    def commit(self, client: ClusterClient) -> None:
        """Commit what is not committed yet, as a consumer without a membership does. What is refused stays wanted."""
        ahead = {place: offset for place, offset in self.wanted.items() if self.committed.get(place) != offset}
        if not ahead:
            return
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in sorted(ahead.items()):
            note = self.notes.get((topic, partition))
            at = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_metadata="" if note is None else note.text(),
            )
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(at)
        answer = ask_coordinator(
            client,
            "commit positions",
            self.group_id,
            OffsetCommitRequest(group_id=self.group_id, topics=list(topics.values())),
            OffsetCommitResponse,
            _code_of_all,
            key_type=GROUP,
            version_max=_BY_NAME_VERSION_MAX,
        )
        for place, code in _codes(answer):
            if code == ErrorCode.NONE:
                self.committed[place] = ahead[place]
            elif code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise Refused(
                    f"the positions of this query are not shown: group {self.group_id!r} has members of its own, whose "
                    f"positions would be moved; stop them or name another group with the option {GROUP_OPTION!r}"
                )
            elif code in _OF_PARTITIONS:
                del self.wanted[place]  # The topic is deleted, and with it everything that could lag behind.
            else:
                logger.warning("%s of %s-%d is not committed: %s", self.group_id, *place, code.name)


def _codes(answer: OffsetCommitResponse) -> list[tuple[Place, ErrorCode]]:
    return [
        ((topic.name, each.partition_index), named(each.error_code))
        for topic in answer.topics
        for each in topic.partitions
    ]


def _code_of_all(answer: OffsetCommitResponse) -> int:
    """What is wrong with the coordinator, or with the group; a topic that is gone is no matter of theirs."""
    return next((code for _, code in _codes(answer) if code not in _OF_PARTITIONS), ErrorCode.NONE)


@dataclass
class WatchedQuery:
    """One run of one query. Its sources are looked up with the first batch: before, Spark has not made them."""

    query: Any
    name: str | None
    query_id: str
    sources: dict[str, GroupPositions] | None = None
    refusal: str | None = None


class PositionsListener(StreamingQueryListener):
    """Commits positions in the order of Spark's events; one that fails is tried again with the next event."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        # Spark tells a start from the query's own thread and all else from the listener bus.
        self._lock = threading.Lock()
        self._running: dict[str, WatchedQuery] = {}
        self._clients: dict[ClientSettings, ClusterClient] = {}
        self._rests_until_s: dict[str, float] = {}
        """By cluster: one that did not answer is left alone for a while."""
        self.refusals: dict[str, str] = {}
        """By query id, why its positions are not shown."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self._session.streams.get(str(event.id))
        with self._lock:
            # Told by the query's own thread, which goes on to its sources when this has returned.
            shared_environment.fill(self._session)
            if query is not None:
                self._running[str(event.runId)] = WatchedQuery(query, event.name, str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._lock:
            watched = self._running.get(str(event.progress.runId))
            if watched is not None:
                self._take(watched, event.progress)
                self._commit(watched)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        with self._lock:
            if (watched := self._running.get(str(event.runId))) is not None:
                self._commit(watched)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            if (watched := self._running.pop(str(event.runId), None)) is not None:
                self._commit(watched, is_last=True)
            if not self._running:
                self.close()

    def close(self) -> None:
        """Close the connections. The next commit opens new ones."""
        while self._clients:
            self._clients.popitem()[1].close()

    def _take(self, watched: WatchedQuery, progress: StreamingQueryProgress) -> None:
        if watched.sources is None:
            watched.sources = self._groups_of(watched)
        for source in progress.sources:
            if (group := watched.sources.get(source.description)) is not None:
                ends, begins = positions_of(source.endOffset), begins_of(source.startOffset)
                query, batch_id = watched.name or watched.query_id, progress.batchId
                group.reach(ends, {place: BatchNote(query, batch_id, begins.get(place)) for place in ends})

    def _groups_of(self, watched: WatchedQuery) -> dict[str, GroupPositions]:
        from py4j.protocol import Py4JError

        try:
            found = sources_of(watched.query)
        except Py4JError as error:
            # Another Spark than the one that a test holds these names against. Its queries run all the same.
            logger.warning("the positions of this query are not shown: its sources cannot be read (%s)", error)
            return {}
        return {
            described: GroupPositions(
                options[BOOTSTRAP_OPTION], group_of(options, watched.name, watched.query_id), security_of(options)
            )
            for described, options in found.items()
            if options.get(BOOTSTRAP_OPTION)
        }

    def _commit(self, watched: WatchedQuery, *, is_last: bool = False) -> None:
        for group in (watched.sources or {}).values():
            if watched.refusal is not None:
                return
            is_resting = time.monotonic() < self._rests_until_s.get(group.bootstrap, 0.0)
            if is_resting and not (is_last and _is_reachable(group.bootstrap)):
                continue
            try:
                group.commit(self._client(group))
            except Refused as refusal:
                # Once, because a group with members will have some again, and the warning would come with every batch.
                watched.refusal = self.refusals[watched.query_id] = str(refusal)
                logger.warning("query %s: %s", watched.name or watched.query_id, refusal)
            except ClientFailed as error:
                self._rests_until_s[group.bootstrap] = time.monotonic() + REST_S
                logger.warning("positions of group %s are not committed: %s", group.group_id, error)

    def _client(self, group: GroupPositions) -> ClusterClient:
        settings = ClientSettings.within(
            group.bootstrap, "strandline-spark-positions", COMMIT_TIMEOUT_S, group.security
        )
        if settings not in self._clients:
            self._clients[settings] = ClusterClient(settings)
        return self._clients[settings]


def sources_of(query: Any) -> dict[str, dict[str, str]]:
    """The options of each of our sources in a running query, by the description that progress reports name it with.

    Progress reports tell no options, so they are read from the plan, by names inside Spark that a test pins.
    """
    execution = query._jsq.streamingQuery() if hasattr(query._jsq, "streamingQuery") else query._jsq
    leaves = execution.logicalPlan().collectLeaves()
    found = {}
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if not leaf.getClass().getSimpleName().startswith("StreamingDataSourceV2"):
            continue
        relation = leaf.relation()
        if relation.table().name().lower() == FORMAT:
            options = dict(relation.options().asCaseSensitiveMap())
            found[leaf.stream().toString()] = {str(name).lower(): str(value) for name, value in options.items()}
    return found


_watching: dict[int, PositionsListener] = {}


def watch_positions(spark: SparkSession) -> PositionsListener:
    """Show how far this session's queries have read as positions of consumer groups. A second call changes nothing."""
    if not hasattr(spark, "_jsparkSession"):
        raise SparkFailed("positions cannot be shown for a session of Spark Connect: commit them from its server")
    known = _watching.get(id(spark))
    if known is not None and known._session is spark:
        return known
    listener = PositionsListener(spark)
    spark.streams.addListener(listener)
    _watching[id(spark)] = listener
    # A script that ends with its query would otherwise be gone before Spark has told of the last batch.
    atexit.register(settle, spark)
    return listener


def _is_reachable(bootstrap: str) -> bool:
    """Return whether a server takes connections. Without one a client would wait for all of its time."""
    for server in bootstrap.split(","):
        try:
            socket.create_connection(host_and_port(server), REACH_TIMEOUT_S).close()
        except OSError:
            continue
        return True
    return False


def settle(spark: SparkSession) -> None:
    """Return once the positions of every batch committed so far are committed, too, or after ten seconds."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    if context._jsc is None or context._gateway is None:
        return  # It was stopped, which waits for all listeners by itself.
    if is_java_gone():
        return  # The call that lost it has failed already.
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(int(SETTLE_TIMEOUT_S * 1000))
    except (Py4JError, OSError) as error:
        logger.warning("positions may be behind what was read: %s", explain_failure(error))
