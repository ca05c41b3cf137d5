"""`strandline txn abort`: ends a transaction that is open, by its id, or one that hangs on a partition.

By id: its producer is fenced, as by the next one that begins with the id, and the coordinator aborts what is open.
A sink has many: each of its transactions that is open is aborted, and which batch it committed last stays as it is.

On a partition: a marker is written there that aborts, which is for transactions that no coordinator knows of; while
one does, it is refused. Between the last look and the marker the producer may begin another transaction with the same
epoch there, and then its first records are aborted with the hanging ones. It takes a producer of the time before
transactions v2 that comes back within these milliseconds.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.completion import transactional_ids
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.group.state import partitions_words
from strandline.cli.txn.aborting import (
    UNDONE,
    abort_hanging,
    abort_known,
    abort_lines,
    chosen_holder,
    fence,
    hanging_lines,
    look_at,
    require_hanging,
    require_ongoing,
)
from strandline.cli.txn.holds import PartitionsOfCluster
from strandline.cli.txn.reading import find_transaction, read_transaction, read_transactions, require_spoken
from strandline.cli.txn.state import ONGOING, TransactionState
from strandline.ids import sink_key
from strandline.lag.verdict import span


def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The transactional id whose open transaction is aborted.",
            show_default=False,
            autocompletion=transactional_ids,
        ),
    ] = None,
    topic_partition: Annotated[
        str | None,
        typer.Option("--topic-partition", "-p", metavar="TOPIC-PARTITION", help="Where a transaction hangs."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", min=0, help="The offset at which the hanging one began."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="The producer of the hanging one.")
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="SINK", help="All that is open of this sink, as `txn sink` names it."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Abort what an id has open, all that a sink has open, or what hangs on a partition and will not end by itself.

    What it wrote stays in the log, and readers of committed records pass over it.
    """
    if (transactional_id, topic_partition, sink).count(None) != 2:
        raise UsageFailed(
            "say which: a transactional id, --sink, or --topic-partition with --start-offset or --producer-id",
            hint="`strandline txn why` names both",
        )
    if topic_partition is not None and start_offset is None and producer_id is None:
        raise UsageFailed(
            "a partition may have many transactions open: say --start-offset or --producer-id",
            hint=f"`strandline txn why {topic_partition}` names them",
        )
    if topic_partition is None and (start_offset is not None or producer_id is not None):
        raise UsageFailed("--start-offset and --producer-id go with --topic-partition")
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)
    if transactional_id is not None:
        _abort_by_id(cluster, output, transactional_id, yes=yes)
    elif sink is not None:
        _abort_sink(cluster, output, sink, yes=yes)
    elif topic_partition is not None:
        _abort_on_partition(cluster, output, topic_partition, start_offset, producer_id, yes=yes)


# ---- by transactional id


def _abort_by_id(cluster: Cluster, output: Output, transactional_id: str, *, yes: bool) -> None:
    transaction = read_transaction(cluster, transactional_id)
    require_ongoing(transaction)
    plan = abort_lines(transaction)
    confirm(output, plan, yes=yes, question="Abort?", undone=UNDONE)
    epoch = abort_known(cluster, transaction)
    if output.as_json:
        output.json_line({"transactional_id": transactional_id, "aborted": True, "producer_epoch": epoch})
    else:
        output.line(f"aborted the transaction of {transactional_id}; its next producer has epoch {epoch + 1}")


def _abort_sink(cluster: Cluster, output: Output, sink_id: str, *, yes: bool) -> None:
    key = sink_key(sink_id)
    found = [each for each in read_transactions(cluster, tell=output.talk).transactions if is_of(each, key)]
    if not found:
        raise NotFound(
            f"no coordinator knows a transactional id of sink {sink_id!r}", hint="`strandline txn sink list`"
        )
    due = [each for each in found if each.state == ONGOING]
    if not due:
        raise CommandFailed(f"sink {sink_id!r} has no transaction open")
    plan = [
        f"abort the transaction of {each.transactional_id} (open for {span((each.age_ms or 0) / 1000)}) on "
        f"{partitions_words(each.partitions)}"
        for each in due
    ]
    plan.append("its job fails with its next commit, and writes the batch again when it is restarted")
    confirm(output, plan, yes=yes, question="Abort?", undone=UNDONE)
    for each in due:
        now = find_transaction(cluster, each.transactional_id)
        if now is None or now.state != ONGOING or now.is_same_as != each.is_same_as:
            output.talk(f"the transaction of {each.transactional_id} has ended meanwhile")
            continue
        epoch = fence(cluster, each)
        if output.as_json:
            output.json_line({"transactional_id": each.transactional_id, "aborted": True, "producer_epoch": epoch})
        else:
            output.line(f"aborted the transaction of {each.transactional_id}")


def is_of(transaction: TransactionState, key: str) -> bool:
    return transaction.transactional_id.startswith(key)


# ---- one that hangs


def _abort_on_partition(
    cluster: Cluster, output: Output, name: str, start_offset: int | None, producer_id: int | None, *, yes: bool
) -> None:
    there = PartitionsOfCluster(cluster)
    place = there.one(name)
    holder = chosen_holder(look_at(cluster, there, place), name, start_offset, producer_id)
    producer = holder.producer
    require_hanging(holder, name)
    plan = hanging_lines(holder, name)
    confirm(output, plan, yes=yes, question="Abort?", undone=UNDONE)
    abort_hanging(cluster, there, place, holder)
    if output.as_json:
        output.json_line(
            {
                "topic": place[0],
                "partition": place[1],
                "producer_id": producer.producer_id,
                "start_offset": producer.start_offset,
                "aborted": True,
            }
        )
    else:
        output.line(f"aborted the transaction of producer {producer.producer_id} on {name}")
