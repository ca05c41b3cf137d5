"""`strandline txn abort`: ends a transaction that is open, by its id, or one that hangs on a partition.

By id: its producer is fenced, as by the next one that begins with the id, and the coordinator aborts what is open.
A sink has many: each of its transactions that is open is aborted, and which batch it committed last stays as it is.

On a partition: a marker is written there that aborts, which is for transactions that no coordinator knows of; while
one does, it is refused. Between the last look and the marker the producer may begin another transaction with the same
epoch there, and then its first records are aborted with the hanging ones. It takes a producer of the time before
transactions v2 that comes back within these milliseconds.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.completion import transactional_ids
from strandline.cli.common.conversation import (
    LOOK_AGAIN_S,
    BrokerApis,
    Conversation,
    ask_coordinator,
    check,
    error_name,
)
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.group.state import Place, partitions_words
from strandline.cli.txn.holds import PartitionsOfCluster, read_holders
from strandline.cli.txn.reading import find_transaction, read_transaction, read_transactions, require_spoken
from strandline.cli.txn.state import ONGOING, PREPARED, Holder, HoldVerdict, TransactionState
from strandline.client.coordinators import TRANSACTION
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.codec.messages.write_txn_markers_response import WriteTxnMarkersResponse
from strandline.errors import ErrorCode
from strandline.ids import sink_key
from strandline.lag.verdict import span

UNDONE = "nothing was aborted"


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
        _abort_hanging(cluster, output, topic_partition, start_offset, producer_id, yes=yes)


# ---- by transactional id


def _abort_by_id(cluster: Cluster, output: Output, transactional_id: str, *, yes: bool) -> None:
    transaction = read_transaction(cluster, transactional_id)
    _require_ongoing(transaction)
    age = span((transaction.age_ms or 0) / 1000)
    plan = [
        f"abort the transaction of {transactional_id} (producer {transaction.producer_id}, epoch "
        f"{transaction.producer_epoch}, open for {age}) on {partitions_words(transaction.partitions)}",
        f"its producer{f', {transaction.client},' if transaction.client else ''} is fenced: it fails with its next "
        "request and has to begin again",
    ]
    confirm(output, plan, yes=yes, question="Abort?", undone=UNDONE)
    now = find_transaction(cluster, transactional_id)
    if now is None or now.state != ONGOING or now.is_same_as != transaction.is_same_as:
        raise CommandFailed(f"the transaction of {transactional_id!r} has ended meanwhile; {UNDONE}")
    epoch = _fence(cluster, transaction)
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
        epoch = _fence(cluster, each)
        if output.as_json:
            output.json_line({"transactional_id": each.transactional_id, "aborted": True, "producer_epoch": epoch})
        else:
            output.line(f"aborted the transaction of {each.transactional_id}")


def is_of(transaction: TransactionState, key: str) -> bool:
    return transaction.transactional_id.startswith(key)


def _require_ongoing(transaction: TransactionState) -> None:
    if transaction.state in PREPARED:
        raise CommandFailed(
            f"the transaction of {transaction.transactional_id!r} is decided ({transaction.state}) and cannot be "
            f"changed: {transaction.ends}",
            hint="bring back the brokers that lead these partitions: `strandline cluster health`",
        )
    if transaction.state != ONGOING:
        raise CommandFailed(
            f"{transaction.transactional_id!r} has no transaction open: it is {transaction.state}",
            hint="`strandline txn why` says what holds readers back",
        )


def _fence(cluster: Cluster, transaction: TransactionState) -> int:
    """Begin with the id, as its next producer would, until what was open is aborted; the epoch that this took."""
    doing = f"cannot abort the transaction of {transaction.transactional_id!r}"
    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=transaction.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )

    def ask(coordinator: BrokerApis, node_id: int) -> InitProducerIdResponse:
        answer = coordinator.ask(request, InitProducerIdResponse)
        if answer is None:
            raise CommandFailed("this cluster does not offer InitProducerId")
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            check(answer.error_code, doing)
        return answer

    until = time.monotonic() + cluster.timeout_s
    while True:
        answer = ask_coordinator(cluster, transaction.transactional_id, ask, doing=doing, key_type=TRANSACTION)
        if not answer.error_code:
            return answer.producer_epoch
        if time.monotonic() > until:
            now = find_transaction(cluster, transaction.transactional_id)
            raise Unreachable(
                f"the transaction of {transaction.transactional_id!r} is not over after {cluster.timeout_s:g} s"
                + (f": {now.ends}" if now is not None and now.ends else ""),
                hint=f"its producer is fenced and the abort goes on: `strandline txn describe "
                f"{transaction.transactional_id}`",
            )
        time.sleep(LOOK_AGAIN_S)


# ---- one that hangs


def _abort_hanging(
    cluster: Cluster, output: Output, name: str, start_offset: int | None, producer_id: int | None, *, yes: bool
) -> None:
    admin = cluster.admin()
    there = PartitionsOfCluster(cluster, admin)
    place = there.one(name)
    holder = _chosen(_look(cluster, there, place), name, start_offset, producer_id)
    producer = holder.producer
    _require_hanging(holder, name)
    plan = [
        f"write a marker to {name} that aborts what producer {producer.producer_id} (epoch "
        f"{producer.producer_epoch}) wrote there from offset {producer.start_offset:,} on",
        "no coordinator knows this transaction, so it will not end by itself; what the producer wrote stays unseen by "
        "readers of committed records",
    ]
    confirm(output, plan, yes=yes, question="Abort?", undone=UNDONE)
    # A coordinator may have come back while the plan was read.
    again = _chosen(_look(cluster, there, place), name, producer.start_offset, producer.producer_id)
    _require_hanging(again, name)
    if again.producer.producer_epoch != producer.producer_epoch:
        raise CommandFailed(f"producer {producer.producer_id} goes on with another epoch by now; {UNDONE}")
    _write_marker(cluster, there, place, again)
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


def _look(cluster: Cluster, there: PartitionsOfCluster, place: Place) -> list[Holder]:
    if there.leaders[place] not in there.brokers:
        raise Unreachable(f"{place[0]}-{place[1]} has no leader", hint="`strandline cluster health`")
    return read_holders(cluster, there, [place]).get(place, [])


def _chosen(holders: list[Holder], name: str, start_offset: int | None, producer_id: int | None) -> Holder:
    chosen = [
        each
        for each in holders
        if start_offset in (None, each.producer.start_offset) and producer_id in (None, each.producer.producer_id)
    ]
    if not chosen:
        asked = [] if start_offset is None else [f"begins at offset {start_offset:,}"]
        asked += [] if producer_id is None else [f"is of producer {producer_id}"]
        raise NotFound(
            f"no transaction that {' and '.join(asked)} is open on {name}",
            hint=f"`strandline txn why {name}` names those that are",
        )
    return chosen[0]


def _require_hanging(holder: Holder, name: str) -> None:
    transaction = holder.transaction
    if holder.verdict is HoldVerdict.HANGING:
        return
    if transaction is None:
        raise Unreachable(
            f"a broker that may coordinate this transaction could not be asked; {UNDONE}",
            hint="bring it back first: `strandline cluster health`",
        )
    if transaction.state in PREPARED:
        _require_ongoing(transaction)
    raise CommandFailed(
        f"this transaction does not hang: node {transaction.coordinator} coordinates it as "
        f"{transaction.transactional_id!r} ({transaction.state}); {transaction.ends}",
        hint=f"to abort it on all its partitions: strandline txn abort {transaction.transactional_id}",
    )


def _write_marker(cluster: Cluster, there: PartitionsOfCluster, place: Place, holder: Holder) -> None:
    topic, partition = place
    producer = holder.producer
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                # The epoch of the last marker that the partition has of this producer: a coordinator that is still
                # there is at least as new, so that whatever it writes later is taken.
                coordinator_epoch=max(0, producer.coordinator_epoch),
            )
        ]
    )
    broker = there.brokers[there.leaders[place]]
    with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
        answer = conversation.ask(request, WriteTxnMarkersResponse)
    if answer is None:
        raise CommandFailed("this cluster does not offer WriteTxnMarkers to clients")
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code == ErrorCode.REQUEST_TIMED_OUT:
        raise Unreachable(
            f"the marker is written to {topic}-{partition} and not replicated yet",
            hint=f"`strandline txn why {topic}-{partition}` says when it is",
        )
    if code:
        raise CommandFailed(f"node {broker.id} did not write the marker to {topic}-{partition}: {error_name(code)}")
