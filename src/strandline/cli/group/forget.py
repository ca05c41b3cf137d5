"""`strandline group delete --topic`: a group forgets its positions in topics that it does not read any more."""

from __future__ import annotations

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import BrokerApis, ask_coordinator, check, error_name, is_spoken, not_spoken
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.group.offsets import committed_offsets
from strandline.cli.group.reset_plan import parse_selection
from strandline.cli.group.state import Place, partitions_words
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_delete_response import OffsetDeleteResponse
from strandline.errors import ErrorCode


def forget_positions(
    cluster: Cluster, output: Output, group_ids: list[str], selections: list[str], *, yes: bool
) -> None:
    wanted = {group_id: chosen_positions(cluster, group_id, selections) for group_id in group_ids}
    plan = [forgetting_line(group_id, places) for group_id, places in wanted.items()]
    confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    refused: list[str] = []
    for group_id, places in wanted.items():
        for (topic, partition), reason in delete_positions(cluster, group_id, places).items():
            if reason is not None:
                refused.append(f"{topic}-{partition}: {reason}")
            if output.as_json:
                deleted = {"group": group_id, "topic": topic, "partition": partition, "deleted": reason is None}
                output.json_line(deleted)
            elif reason is None:
                output.line(f"deleted the position of {group_id} in {topic}-{partition}")
    check_deleted(refused)


def forgetting_line(group_id: str, places: list[Place]) -> str:
    return f"delete {count(len(places), 'position')} of group {group_id}, for good: {partitions_words(places)}"


def check_deleted(refused: list[str]) -> None:
    """Raise CommandFailed for positions that the cluster kept."""
    if refused:
        more = f"; and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise CommandFailed(f"not deleted: {refused[0]}{more}", hint="positions in topics that members read stay")


def chosen_positions(cluster: Cluster, group_id: str, selections: list[str]) -> list[Place]:
    """Return what the group has committed of a selection. A topic may be gone; its positions can go, too."""
    if not is_spoken(cluster):
        # librdkafka's Python client has no call for it.
        raise not_spoken("positions cannot be deleted")
    committed = committed_offsets(cluster, group_id)
    chosen = set()
    for selection in selections:
        try:
            topic, partitions = parse_selection(selection)
        except ValueError as error:
            raise UsageFailed(f"--topic {error}") from None
        chosen |= {place for place in committed if place[0] == topic and (partitions is None or place[1] in partitions)}
    if not chosen:
        raise CommandFailed(f"group {group_id!r} has no position there", hint="see `strandline group describe`")
    return sorted(chosen)


def delete_positions(cluster: Cluster, group_id: str, places: list[Place]) -> dict[Place, str | None]:
    """Delete positions; return by place None, or why the cluster kept it."""
    doing = f"cannot delete positions of group {group_id!r}"
    topics = sorted({topic for topic, _ in places})
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=partition)
                    for name, partition in places
                    if name == topic
                ],
            )
            for topic in topics
        ],
    )

    def ask(coordinator: BrokerApis, node_id: int) -> OffsetDeleteResponse:
        answer = coordinator.ask(request, OffsetDeleteResponse)
        if answer is None:
            raise CommandFailed("this cluster does not offer OffsetDelete")
        check(answer.error_code, doing)
        return answer

    answer = ask_coordinator(cluster, group_id, ask, doing=doing)
    return {
        (topic.name, each.partition_index): None if each.error_code == ErrorCode.NONE else error_name(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
