"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates.

Honoured: states and producer ids to choose by, how long a transaction is open (1+), a regular expression for the id
(2+), in the syntax of RE2 and for the whole of it. States that are not known are named in the answer and choose
nothing. An expression that is none is INVALID_REGULAR_EXPRESSION. While a shard is being loaded the answer is
COORDINATOR_LOAD_IN_PROGRESS, as in Kafka. A share of the ids is listed in each turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.coordinators.groups.consumer.regex_subscriptions import matcher
from strandline.coordinators.transactions.events import ListTransactions
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.runtime.time_slicing import gradually

API_KEY = 66
VERSIONS = (0, 2)

IDS_PER_PART_MAX: Final = 500
"""Transactional ids that are listed in one step of their shard."""

Part = ListTransactionsResponse | ErrorCode


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse | None:
    try:
        expression = request.transactional_id_pattern
        pattern = matcher(expression) if expression else None
    except RequestError as refusal:
        return ListTransactionsResponse(error_code=refusal.code)
    transactions = context.node.transactions
    if transactions.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    gathering = Gathering(lambda parts: context.reply(_one_answer(parts)))
    gradually(context.node.runtime, _ask_all(context, request, pattern, gathering), gathering.end)
    return None


def _ask_all(
    context: RequestContext,
    request: ListTransactionsRequest,
    pattern: Callable[[str], bool] | None,
    gathering: Gathering,
) -> Iterator[None]:
    transactions = context.node.transactions
    producer_ids = frozenset(request.producer_id_filters)
    for index in transactions.led_indexes():
        ids: tuple[str, ...] = transactions.ids_of(index)
        # One part at least, because it names the unknown states.
        for at in range(0, max(len(ids), 1), IDS_PER_PART_MAX):
            event = ListTransactions(
                gathering.token(refusal=lambda code: code),
                ids[at : at + IDS_PER_PART_MAX],
                tuple(request.state_filters),
                producer_ids,
                request.duration_filter,
                pattern,
            )
            transactions.submit_to(index, event)
            yield


def _one_answer(parts: list[Part]) -> ListTransactionsResponse:
    answer = ListTransactionsResponse()
    for part in parts:
        if isinstance(part, ErrorCode):
            # Ids that have moved are listed where they are coordinated now.
            if part is not ErrorCode.NOT_COORDINATOR:
                return ListTransactionsResponse(error_code=part)
            continue
        answer.unknown_state_filters = part.unknown_state_filters
        answer.transaction_states += part.transaction_states
    return answer
