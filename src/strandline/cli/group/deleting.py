"""Deletes groups; a group goes with every position that it has committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.failures import CommandFailed, from_kafka_error
from strandline.cli.common.plain_words import count
from strandline.cli.group.offsets import committed_offsets
from strandline.cli.group.state import GroupDescription, names_words

HINTS = {"NON_EMPTY_GROUP": "members came meanwhile: stop its consumers, and try again"}


def refuse_if_live(group: GroupDescription, done: str) -> None:
    """A member would go on from what it remembers and commit over whatever is done here."""
    if not group.members:
        return
    live = count(len(group.members), "live member")
    raise CommandFailed(
        f"group {group.group_id!r} cannot be {done} while it has {live}: {names_words(group.members)}",
        hint="stop its consumers; one that died, or is static, is gone when its session timeout is over",
    )


def deletion_line(cluster: Cluster, group: GroupDescription) -> str:
    committed = committed_offsets(cluster, group.group_id)
    topics = len({topic for topic, _ in committed})
    held = f"{count(len(committed), 'position')} in {count(topics, 'topic')}" if committed else "no positions"
    return f"delete group {group.group_id} ({group.state}): {held}, for good; no record is touched"


def delete_groups(cluster: Cluster, names: Sequence[str]) -> Iterator[tuple[str, CommandFailed | None]]:
    """Delete groups; yield each name with None, or with why it was not deleted."""
    admin = cluster.admin()
    with cluster.errors("cannot delete groups"):
        answers = admin.delete_consumer_groups(list(names), request_timeout=cluster.timeout_s)
    for name, future in answers.items():
        failure = None
        try:
            future.result()
        except kafka_api().KafkaException as error:
            failure = from_kafka_error(
                error.args[0], bootstrap=cluster.bootstrap, doing=f"cannot delete group {name!r}"
            )
            failure.hint = HINTS.get(error.args[0].name(), failure.hint)
        yield name, failure
