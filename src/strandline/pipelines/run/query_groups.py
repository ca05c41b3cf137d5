"""The consumer groups that show how far queries have read: their positions, and their removal."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClusterFailed
from strandline.client.group_positions import read_positions
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_groups_response import DeleteGroupsResponse
from strandline.errors import ErrorCode
from strandline.pipelines.failures import refused
from strandline.pipelines.run.checkpoint_files import Offsets

READ_S_MAX: Final = 30.0
REMOVE_S_MAX: Final = 5.0
"""Short, because groups only show positions, and expire by themselves."""


def committed_positions(bootstrap: str, group_id: str) -> Offsets:
    """Return the committed offset of each partition; none for a group that does not exist."""
    try:
        with closing(_client(bootstrap, READ_S_MAX)) as client:
            code, positions = read_positions(client, "read positions", group_id)
    except ClusterFailed as error:
        raise refused(f"the positions of the group {group_id} cannot be read, try again: {error}") from error
    if code != ErrorCode.NONE:
        raise refused(f"the positions of the group {group_id} cannot be read: {code.name}")
    found: Offsets = {}
    for (topic, partition), committed in positions.items():
        found.setdefault(topic, {})[str(partition)] = committed.offset
    return found


def remove_groups(bootstrap: str, group_ids: Iterable[str]) -> list[str]:
    """Remove the groups that are empty, and return them. One that has no coordinator now is left alone."""
    removed = []
    try:
        with closing(_client(bootstrap, REMOVE_S_MAX)) as client:
            for group_id in group_ids:
                (told,) = ask_coordinator(
                    client,
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
        pass  # The next group would wait as long, and the rest expires.
    return removed


def _client(bootstrap: str, timeout_s: float) -> ClusterClient:
    return ClusterClient(ClientSettings.within(bootstrap, "strandline-pipelines", timeout_s))
