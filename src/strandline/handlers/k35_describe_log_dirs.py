"""DescribeLogDirs (35), versions 1-5: how much each partition takes, and how much room there is.

Honoured: some partitions or all (null); sizes of logs as their segments are known, without a look at the disk; total
and usable bytes of the file system (4+). A node has one directory, nothing moves between directories, so no log is a
future one, and none is cordoned (5+). The metadata log is not listed, as in Kafka. A long list is put together a share
per turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from strandline.errors import error_code
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.handlers.support.response_parts import joined, joined_response
from strandline.handlers.support.storage_facts import asked_partitions
from strandline.runtime.time_slicing import gradually

API_KEY = 35
VERSIONS = (1, 5)

_SPACE_FROM = 4
_SPACE_SIZE = 16
_CORDONED_FROM = 5


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse | None:
    node, version = context.node, context.api_version
    result = DescribeLogDirsResult(log_dir=str(node.directory.path.absolute()))

    def on_space(space: tuple[int, int] | None, error: BaseException | None) -> None:
        if space is None:
            result.error_code = error_code(error) if error is not None else 0
            context.reply(DescribeLogDirsResponse(results=[result]))
            return
        result.total_bytes, result.usable_bytes = space
        gradually(node.runtime, _partitions(node, request, version), on_partitions)

    def on_partitions(parts: list[tuple[str, bytes]]) -> None:
        of_topic: dict[str, list[bytes]] = {}
        for topic, part in parts:
            of_topic.setdefault(topic, []).append(part)
        topics = [joined(DescribeLogDirsTopic(name=name), version, each) for name, each in of_topic.items()]
        tail_size = _SPACE_SIZE * (version >= _SPACE_FROM) + (version >= _CORDONED_FROM)
        directory = joined(result, version, topics, tail_size=tail_size)
        context.reply(joined_response(DescribeLogDirsResponse(), version, [directory]))

    # A file system may keep who asks waiting, one on a network above all.
    node.runtime.in_thread(node.directory.space, on_space)
    return None


def _partitions(node: BrokerServices, request: DescribeLogDirsRequest, version: int) -> Iterator[tuple[str, bytes]]:
    """Yield each requested partition that is here, encoded, with its topic."""
    for name, index in asked_partitions(node, request):
        partition = node.partition(name, index)
        if partition is not None:
            described = DescribeLogDirsPartition(
                partition_index=index,
                partition_size=partition.log.size_bytes(),
                offset_lag=max(0, partition.high_watermark - partition.log_end_offset),
            )
            yield name, encode(described, version)
