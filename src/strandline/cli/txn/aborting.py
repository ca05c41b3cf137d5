"""Aborts transactions: one that its coordinator knows, by its id, and one that hangs on a partition.

It defines no command, so that the console aborts in the same way.
"""

from __future__ import annotations

import time

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import (
    LOOK_AGAIN_S,
    BrokerApis,
    Conversation,
    ask_coordinator,
    check,
    error_name,
)
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable
from strandline.cli.group.state import Place, partitions_words
from strandline.cli.txn.holds import PartitionsOfCluster, read_holders
from strandline.cli.txn.reading import find_transaction
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
from strandline.lag.verdict import span

UNDONE = "nothing was aborted"


def abort_lines(transaction: TransactionState) -> list[str]:
    """Return the plan of an abort by id."""
    age = span((transaction.age_ms or 0) / 1000)
    return [
        f"abort the transaction of {transaction.transactional_id} (producer {transaction.producer_id}, epoch "
        f"{transaction.producer_epoch}, open for {age}) on {partitions_words(transaction.partitions)}",
        f"its producer{f', {transaction.client},' if transaction.client else ''} is fenced: it fails with its next "
        "request and has to begin again",
    ]


def abort_known(cluster: Cluster, transaction: TransactionState) -> int:
    """Abort this transaction of an id and no later one; return the epoch that this took."""
    now = find_transaction(cluster, transaction.transactional_id)
    if now is None or now.state != ONGOING or now.is_same_as != transaction.is_same_as:
        raise CommandFailed(f"the transaction of {transaction.transactional_id!r} has ended meanwhile; {UNDONE}")
    return fence(cluster, transaction)


def hanging_lines(holder: Holder, name: str) -> list[str]:
    """Return the plan of an abort on a partition."""
    producer = holder.producer
    return [
        f"write a marker to {name} that aborts what producer {producer.producer_id} (epoch "
        f"{producer.producer_epoch}) wrote there from offset {producer.start_offset:,} on",
        "no coordinator knows this transaction, so it will not end by itself; what the producer wrote stays unseen by "
        "readers of committed records",
    ]


def abort_hanging(cluster: Cluster, there: PartitionsOfCluster, place: Place, holder: Holder) -> None:
    """Abort a transaction that hangs, if it still does: a coordinator may have come back meanwhile."""
    producer, name = holder.producer, f"{place[0]}-{place[1]}"
    again = chosen_holder(look_at(cluster, there, place), name, producer.start_offset, producer.producer_id)
    require_hanging(again, name)
    if again.producer.producer_epoch != producer.producer_epoch:
        raise CommandFailed(f"producer {producer.producer_id} goes on with another epoch by now; {UNDONE}")
    write_marker(cluster, there, place, again)


def require_ongoing(transaction: TransactionState) -> None:
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


def fence(cluster: Cluster, transaction: TransactionState) -> int:
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


def look_at(cluster: Cluster, there: PartitionsOfCluster, place: Place) -> list[Holder]:
    if there.leaders[place] is None:
        raise Unreachable(f"{place[0]}-{place[1]} has no leader", hint="`strandline cluster health`")
    return read_holders(cluster, there, [place]).get(place, [])


def chosen_holder(holders: list[Holder], name: str, start_offset: int | None, producer_id: int | None) -> Holder:
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


def require_hanging(holder: Holder, name: str) -> None:
    transaction = holder.transaction
    if holder.verdict is HoldVerdict.HANGING:
        return
    if transaction is None:
        raise Unreachable(
            f"a broker that may coordinate this transaction could not be asked; {UNDONE}",
            hint="bring it back first: `strandline cluster health`",
        )
    if transaction.state in PREPARED:
        require_ongoing(transaction)
    raise CommandFailed(
        f"this transaction does not hang: node {transaction.coordinator} coordinates it as "
        f"{transaction.transactional_id!r} ({transaction.state}); {transaction.ends}",
        hint=f"to abort it on all its partitions: strandline txn abort {transaction.transactional_id}",
    )


def write_marker(cluster: Cluster, there: PartitionsOfCluster, place: Place, holder: Holder) -> None:
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
    broker = there.leaders[place]
    assert broker is not None, "its holders were asked of a leader"
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
