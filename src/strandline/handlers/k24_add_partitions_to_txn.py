"""AddPartitionsToTxn (24), versions 0-5: partitions become part of a transaction before they are written to.

Clients name one transaction (0-3), brokers many (4-5): whether partitions are part of it (`VerifyOnly`), or that they
are from now on, because a producer of transactions v2 writes there. A partition that does not exist keeps the others
of its transaction out. As in a Kafka without an authorizer, the sender of versions 4-5 need not be a broker: these
versions allow nothing that the others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from strandline.codec.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.codec.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from strandline.coordinators.transactions.events import AddPartitions, PartitionCodes
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.handlers.support.refusals import fenced_code
from strandline.ids import TopicPartition
from strandline.quorum.controller.topic_names import is_internal
from strandline.runtime.time_slicing import gradually

API_KEY = 24
VERSIONS = (0, 5)

BATCHED_FROM_VERSION = 4


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    version = context.api_version
    if version >= BATCHED_FROM_VERSION:
        transactions = request.transactions
        finish: Callable[[list[Any]], object] = partial(_answer_many, context, transactions)
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
        finish = partial(_answer_one, context)
    gathering = Gathering(finish)
    gradually(context.node.runtime, map(partial(_ask, context, gathering), transactions), gathering.end)


def _ask(context: RequestContext, gathering: Gathering, transaction: AddPartitionsToTxnTransaction) -> None:
    places = tuple(_places(transaction.topics))
    token = gathering.token(refusal=partial(dict.fromkeys, places))
    wrong = {place: code for place in places if (code := _why_not(context, place)) is not ErrorCode.NONE}
    if not transaction.transactional_id:
        token.refuse(ErrorCode.INVALID_REQUEST)
    elif wrong:
        token.answer({place: wrong.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places})
    else:
        event = AddPartitions(
            token,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            places,
            verify_only=transaction.verify_only,
        )
        context.node.transactions.submit(transaction.transactional_id, event)


def _places(topics: list[AddPartitionsToTxnTopic]) -> dict[TopicPartition, None]:
    """Return the partitions in the order of the request, each once."""
    return dict.fromkeys(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _why_not(context: RequestContext, place: TopicPartition) -> ErrorCode:
    if context.api_version < BATCHED_FROM_VERSION and is_internal(place.topic):
        # Offsets become part of a transaction by AddOffsetsToTxn.
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.node.image.topic_by_name(place.topic)
    if topic is None or not 0 <= place.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _answer_one(context: RequestContext, answers: list[PartitionCodes]) -> None:
    topics = _topics(context, answers[0])
    context.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def _answer_many(
    context: RequestContext, transactions: Iterable[AddPartitionsToTxnTransaction], answers: list[PartitionCodes]
) -> None:
    context.reply(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=_topics(context, codes)
                )
                for transaction, codes in zip(transactions, answers, strict=True)
            ]
        )
    )


def _topics(context: RequestContext, codes: PartitionCodes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in codes.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name)
        shown_code = fenced_code(code, api_key=API_KEY, version=context.api_version)
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=shown_code)
        )
    return list(topics.values())
