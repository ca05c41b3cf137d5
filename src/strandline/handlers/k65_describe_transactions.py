"""DescribeTransactions (65), version 0: state, producer, start and partitions of transactional ids."""

from __future__ import annotations

from functools import partial

from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from strandline.coordinators.transactions.events import DescribeTransaction
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.runtime.time_slicing import gradually

API_KEY = 65
VERSIONS = (0, 0)


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> None:
    gathering = Gathering(lambda states: context.reply(DescribeTransactionsResponse(transaction_states=states)))

    def ask(transactional_id: str) -> None:
        token = gathering.token(refusal=partial(_refusal, transactional_id))
        if transactional_id:
            context.node.transactions.submit(transactional_id, DescribeTransaction(token, transactional_id))
        else:
            token.refuse(ErrorCode.INVALID_REQUEST)

    gradually(context.node.runtime, map(ask, request.transactional_ids), gathering.end)


def _refusal(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)
