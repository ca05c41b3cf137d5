"""`strandline group delete`: a group goes with every position that it has committed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api
from strandline.cli.common.failures import CommandFailed, from_kafka_error
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    GroupNames,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.group.forget import forget_positions
from strandline.cli.group.offsets import committed_offsets
from strandline.cli.group.reading import read_group
from strandline.cli.group.state import GroupDescription, names_words

HINTS = {"NON_EMPTY_GROUP": "members came meanwhile: stop its consumers, and try again"}


def delete(
    names: GroupNames,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="Only the positions in this topic, or in these partitions of it. May be repeated.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete groups and their positions; no record is touched. Shows what would go, and asks.

    Refused while a group has live members. With --topic only positions go, in topics that no member reads.
    """
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    # All are looked at before anything is deleted: a typing mistake must not leave half of the work done.
    groups = [read_group(cluster, name) for name in dict.fromkeys(names)]
    if topics:
        forget_positions(cluster, output, [group.group_id for group in groups], topics, yes=yes)
        return
    for group in groups:
        refuse_if_live(group, "deleted")
    plan = [_plan_line(cluster, group) for group in groups]
    confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    _delete(cluster, admin, output, [group.group_id for group in groups])


def refuse_if_live(group: GroupDescription, done: str) -> None:
    """A member would go on from what it remembers and commit over whatever is done here."""
    if not group.members:
        return
    live = count(len(group.members), "live member")
    raise CommandFailed(
        f"group {group.group_id!r} cannot be {done} while it has {live}: {names_words(group.members)}",
        hint="stop its consumers; one that died, or is static, is gone when its session timeout is over",
    )


def _plan_line(cluster: Cluster, group: GroupDescription) -> str:
    committed = committed_offsets(cluster, group.group_id)
    topics = len({topic for topic, _ in committed})
    held = f"{count(len(committed), 'position')} in {count(topics, 'topic')}" if committed else "no positions"
    return f"delete group {group.group_id} ({group.state}): {held}, for good; no record is touched"


def _delete(cluster: Cluster, admin: Any, output: Output, names: list[str]) -> None:
    failures: list[CommandFailed] = []
    with cluster.errors("cannot delete groups"):
        answers = admin.delete_consumer_groups(names, request_timeout=cluster.timeout_s)
    for name, future in answers.items():
        try:
            future.result()
        except kafka_api().KafkaException as error:
            failure = from_kafka_error(
                error.args[0], bootstrap=cluster.bootstrap, doing=f"cannot delete group {name!r}"
            )
            failure.hint = HINTS.get(error.args[0].name(), failure.hint)
            failures.append(failure)
            continue
        if output.as_json:
            output.json_line({"group": name, "deleted": True})
        else:
            output.line(f"deleted {name}")
    if failures:
        raise failures[0] if len(failures) == 1 else CommandFailed("; ".join(failure.message for failure in failures))
