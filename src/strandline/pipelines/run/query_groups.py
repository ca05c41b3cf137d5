"""The consumer groups that show how far queries have read: what they are at, and their end.

Asked with the client that committed them: librdkafka's admin client ends the process when the coordinator of a group
dies with a request under way, and a cluster that loses a node is when recoveries and switches happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from strandline.client.failures import ClusterFailed
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_groups_response import DeleteGroupsResponse
from strandline.errors import ErrorCode
from strandline.pipelines.failures import refused
from strandline.pipelines.run.checkpoint_files import Offsets
from strandline.spark.sink.cluster import GROUP, SinkCluster
from strandline.spark.sink.group_positions import read_positions

_CLIENT: Final = "strandline-pipelines"
READ_S_MAX: Final = 30.0
REMOVE_S_MAX: Final = 5.0
"""Groups only show something, and expire by themselves: nobody waits long for their end."""


def committed_positions(bootstrap: str, group_id: str) -> Offsets:
    """Where a group is in each partition that it has a position in; a group that is not there has none."""
    try:
        with closing(SinkCluster.within(bootstrap, _CLIENT, READ_S_MAX)) as cluster:
            code, positions = read_positions(cluster, "read positions", group_id)
    except ClusterFailed as error:
        raise refused(f"the positions of the group {group_id} cannot be read, try again: {error}") from error
    if code != ErrorCode.NONE:
        raise refused(f"the positions of the group {group_id} cannot be read: {code.name}")
    found: Offsets = {}
    for (topic, partition), offset in positions.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def remove_groups(bootstrap: str, group_ids: Iterable[str]) -> list[str]:
    """Those that are removed; one that is not there, or not empty, or has no coordinator now, is left alone."""
    removed = []
    try:
        with closing(SinkCluster.within(bootstrap, _CLIENT, REMOVE_S_MAX)) as cluster:
            for group_id in group_ids:
                (told,) = cluster.ask_coordinator(
                    "remove a group",
                    group_id,
                    DeleteGroupsRequest(groups_names=[group_id]),
                    DeleteGroupsResponse,
                    lambda answer: answer.results[0].error_code,
                    key_type=GROUP,
                ).results
                if told.error_code == ErrorCode.NONE:
                    removed.append(group_id)
    except ClusterFailed:
        pass  # Who is waited for once in vain would be again: the rest expires.
    return removed
