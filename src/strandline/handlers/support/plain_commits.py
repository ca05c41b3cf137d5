"""The short path of OffsetCommit, all versions: a commit seen before, except for its offset and leader epoch.

The commits of a consumer for one partition differ in nothing else, and these fields are at the end of the request. The
bytes before them are remembered with a `PlainCommit`. The next commit with the same bytes is not decoded, and its
response is not encoded. `k08_offset_commit.handle` takes all other requests: new ones, several partitions, metadata or
an expiry, an unknown topic or group, and rejected ones. It calls `learn` for what is plain.

The end of a plain request, after the index of the partition:

    versions 2-5     offset int64, metadata int16 (its length, 0 or -1)
    versions 6-7     offset int64, leader epoch int32, metadata int16
    versions 8-10    offset int64, leader epoch int32, metadata uvarint (1 or 0), no tagged fields three times
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.coordinators.offsets.offsets import refuse_commit
from strandline.coordinators.offsets.plain_commit import PlainCommit
from strandline.errors import ErrorCode
from strandline.handlers.access.data_access import guard_of, may_commit
from strandline.handlers.support.context import BrokerServices, Connection, Exchange

FLEXIBLE_FROM: Final = 8
LEADER_EPOCH_FROM: Final = 6

PLAIN_COMMITS_MAX: Final = 8_192
"""Commits that are remembered, one for each partition that a member commits alone. Beyond that all are dropped."""
PLAIN_COMMIT_BYTES_MAX: Final = 512
"""A longer one, perhaps with a group id of many kilobytes, is not remembered."""

OLDEST_END: Final = Struct(">q2s")
OLD_END: Final = Struct(">qi2s")
END: Final = Struct(">qi4s")
_ENDS: Final = {version: OLDEST_END if version < LEADER_EPOCH_FROM else OLD_END for version in range(FLEXIBLE_FROM)}
_NO_METADATA: Final = (b"\x00\x00", b"\xff\xff")
_NO_METADATA_NO_TAGS: Final = (b"\x01\x00\x00\x00", b"\x00\x00\x00\x00")


def start(
    node: BrokerServices, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
) -> bool:
    """Start a commit that is remembered; return False, with nothing changed, if `handle` has to decode it."""
    is_flexible = version >= FLEXIBLE_FROM
    end = END if is_flexible else _ENDS[version]
    end_at = len(view) - end.size
    if not 0 < end_at - at <= PLAIN_COMMIT_BYTES_MAX:
        return False
    groups = node.groups
    plain: PlainCommit | None = groups.plain_commits.get((version, bytes(view[at:end_at])))
    if plain is None:
        return False
    fields = end.unpack_from(view, end_at)
    if fields[-1] not in (_NO_METADATA_NO_TAGS if is_flexible else _NO_METADATA):
        return False
    topic = node.image.topic_by_name(plain.topic)
    if topic is None or topic.id is not plain.topic_id:
        # The topic was deleted, or another one has its name.
        return False
    if node.authorizer is not None and not may_commit(guard_of(node, connection, "OffsetCommit"), plain):
        return False
    waiting = PlainWait(plain)
    if not groups.commit_plain(plain, fields[0], fields[1] if version >= LEADER_EPOCH_FROM else -1, waiting):
        return False
    waiting.exchange = connection.begin(correlation_id, flexible_header=is_flexible)
    return True


def learn(node: BrokerServices, request: OffsetCommitRequest, version: int) -> None:
    """Remember a commit of one partition that exists, if it is plain."""
    if request.topics[0].partitions[0].committed_metadata or request.retention_time_ms != -1:
        return
    end = END if version >= FLEXIBLE_FROM else _ENDS[version]
    beginning = encode(request, version)[: -end.size]
    known: dict[tuple[int, bytes], PlainCommit] = node.groups.plain_commits
    old = known.get((version, beginning))
    if len(beginning) > PLAIN_COMMIT_BYTES_MAX or (old is not None and old.topic_id is request.topics[0].topic_id):
        # The commit is known but was not started: it is rejected each time, perhaps.
        return
    if len(known) >= PLAIN_COMMITS_MAX:
        known.clear()
    response = encode(refuse_commit(request, ErrorCode.NONE), version)
    known[version, beginning] = PlainCommit(request, version, response, node.image.coordinator_hash)


class PlainWait:
    """A request that waits for its record to be committed, which is after `start` has returned."""

    __slots__ = ("_plain", "exchange")

    exchange: Exchange

    def __init__(self, plain: PlainCommit) -> None:
        self._plain = plain

    def answer(self, response: bytes) -> None:
        self.exchange.reply(response)

    def refuse(self, code: ErrorCode) -> None:
        self.exchange.count_error(code)
        response: OffsetCommitResponse = refuse_commit(self._plain.request, code)
        self.exchange.reply(encode(response, self._plain.api_version))
