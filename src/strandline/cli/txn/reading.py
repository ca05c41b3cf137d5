"""Reads transactions over the Kafka protocol, from the brokers that coordinate them; any Kafka cluster answers.

librdkafka has no calls for this, so the requests are our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import (
    BrokerApis,
    Conversation,
    ask_coordinator,
    ask_until_settled,
    check,
    error_name,
    is_spoken,
    not_spoken,
)
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, did_you_mean
from strandline.cli.common.partition_places import brokers_of
from strandline.cli.group.state import Place
from strandline.cli.txn.state import SinkState, TransactionState, WaitingMarker
from strandline.client.coordinators import TRANSACTION
from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.describe_transactions_response import DescribeTransactionsResponse
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.list_sinks_response import ListSinksResponse
from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.codec.messages.transaction_progress_request import TransactionProgressRequest
from strandline.codec.messages.transaction_progress_response import TransactionProgressResponse
from strandline.errors import ErrorCode

IDS_PER_REQUEST = 200

Tell = Callable[[str], object]


@dataclass(frozen=True)
class TransactionsFound:
    transactions: list[TransactionState]
    """By transactional id."""
    unasked: tuple[int, ...]
    """Brokers that could not be asked; what they coordinate is missing."""


def require_spoken(cluster: Cluster) -> None:
    if not is_spoken(cluster):
        raise not_spoken("transactions cannot be asked for")


def read_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Iterable[int] = (),
    tell: Tell = lambda words: None,
) -> TransactionsFound:
    """Every transactional id of the cluster that passes the filters, described."""
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=sorted(producer_ids))
    found: dict[str, TransactionState] = {}
    unasked = []
    for broker in brokers_of(cluster):
        try:
            with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
                listed = _listed(conversation, broker.id, request, cluster.timeout_s)
                listed = _described(conversation, listed)
        except Unreachable as failure:
            tell(f"broker {broker.id} could not be asked, so what it coordinates is missing: {failure.message}")
            unasked.append(broker.id)
            continue
        found.update({each.transactional_id: each for each in listed})
    return TransactionsFound([found[each] for each in sorted(found)], tuple(unasked))


def read_transaction(cluster: Cluster, transactional_id: str) -> TransactionState:
    """One transactional id, which must be known."""
    found = find_transaction(cluster, transactional_id)
    if found is None:
        known = [each.transactional_id for each in read_transactions(cluster).transactions]
        meant = did_you_mean(transactional_id, known)
        raise NotFound(
            f"no coordinator knows a transactional id {transactional_id!r}",
            hint=f"{meant}?" if meant else "see them with `strandline txn list`",
        )
    return found


def find_transaction(cluster: Cluster, transactional_id: str) -> TransactionState | None:
    if not transactional_id:
        raise NotFound("a transactional id is not empty")
    doing = f"cannot describe {transactional_id!r}"

    def ask(coordinator: BrokerApis, node_id: int) -> TransactionState | None:
        asked = TransactionState(transactional_id, "", -1, coordinator=node_id)
        return next(iter(_described(coordinator, [asked], doing=doing)), None)

    return ask_coordinator(cluster, transactional_id, ask, doing=doing, key_type=TRANSACTION)


def read_sinks(cluster: Cluster, *, tell: Tell = lambda words: None) -> list[SinkState]:
    """Every sink of the cluster, by its id; none where no broker knows what that is."""
    found: dict[str, SinkState] = {}
    for broker in brokers_of(cluster):
        try:
            with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
                listed = _listed_sinks(conversation, broker.id, cluster.timeout_s)
        except Unreachable as failure:
            tell(f"broker {broker.id} could not be asked, so what it coordinates is missing: {failure.message}")
            continue
        found.update({each.sink_id: each for each in listed})
    return [found[each] for each in sorted(found)]


# ---- one broker


def _listed_sinks(conversation: Conversation, broker_id: int, timeout_s: float) -> list[SinkState]:
    doing = f"cannot list the sinks of broker {broker_id}"

    def ask() -> list[SinkState]:
        answer = conversation.ask(ListSinksRequest(), ListSinksResponse)
        if answer is None:
            return []
        check(answer.error_code, doing)
        return [
            SinkState(
                each.sink_id,
                None if each.last_batch_id < 0 else each.last_batch_id,
                None if each.decided_ms < 0 else each.decided_ms,
                answer.now_ms,
                each.transactional_ids,
                each.open_transactions,
                coordinator=broker_id,
            )
            for each in answer.sinks
        ]

    return ask_until_settled(ask, timeout_s, doing)


def _listed(
    conversation: Conversation, broker_id: int, request: ListTransactionsRequest, timeout_s: float
) -> list[TransactionState]:
    doing = f"cannot list the transactions of broker {broker_id}"

    def ask() -> list[TransactionState]:
        answer = conversation.ask(request, ListTransactionsResponse)
        if answer is None:
            raise CommandFailed("this cluster does not offer ListTransactions")
        check(answer.error_code, doing)
        return [
            TransactionState(each.transactional_id, each.transaction_state, each.producer_id, coordinator=broker_id)
            for each in answer.transaction_states
        ]

    return ask_until_settled(ask, timeout_s, doing)


def _described(
    conversation: BrokerApis, transactions: Sequence[TransactionState], *, doing: str = ""
) -> list[TransactionState]:
    """The same with all that is told of them. One that went meanwhile is left out; one that moved stays as it was
    listed, unless `doing` says that it is the one that was asked about."""
    found = []
    for begin in range(0, len(transactions), IDS_PER_REQUEST):
        part = {each.transactional_id: each for each in transactions[begin : begin + IDS_PER_REQUEST]}
        answer = conversation.ask(
            DescribeTransactionsRequest(transactional_ids=list(part)), DescribeTransactionsResponse
        )
        if answer is None:
            raise CommandFailed("this cluster does not offer DescribeTransactions")
        now_ms = int(time.time() * 1000)
        for each in answer.transaction_states:
            if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                del part[each.transactional_id]
                continue
            if doing:
                check(each.error_code, doing)
            if not each.error_code:
                part[each.transactional_id] = replace(
                    part[each.transactional_id],
                    state=each.transaction_state,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    timeout_ms=each.transaction_timeout_ms,
                    start_ms=each.transaction_start_time_ms,
                    now_ms=now_ms,
                    partitions=tuple(sorted(_places(each.topics))),
                )
        found += _with_progress(conversation, part)
    return found


def _places(topics: Iterable[object]) -> Iterable[Place]:
    for each in topics:
        for partition in each.partitions:  # type: ignore[attr-defined]
            yield each.topic, partition  # type: ignore[attr-defined]


def _with_progress(conversation: BrokerApis, known: dict[str, TransactionState]) -> list[TransactionState]:
    """What only Strandline tells: the clock, the client, and where markers are missing."""
    answer = conversation.ask(TransactionProgressRequest(transactional_ids=list(known)), TransactionProgressResponse)
    if answer is None:
        return list(known.values())
    for each in answer.transactions:
        if each.transactional_id in known:
            known[each.transactional_id] = replace(
                known[each.transactional_id],
                client_id=each.client_id,
                client_host=each.client_host,
                waiting=tuple(
                    WaitingMarker(
                        (marker.topic, marker.partition),
                        marker.leader_id,
                        error_name(marker.error_code) if marker.error_code else "",
                    )
                    for marker in each.waiting
                ),
            )
    return [replace(each, now_ms=answer.now_ms) for each in known.values()]
