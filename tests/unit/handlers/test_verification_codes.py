"""What the coordinator of a transaction said of a partition, in words that make producers do what helps."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.handlers import k28_txn_offset_commit as txn_offset_commit
from strandline.handlers.support.transactional_produce import refusal


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ],
)
def test_where_asking_again_helps_a_producer_sends_again(code: ErrorCode) -> None:
    """Some clients give records up on codes that a Produce never had before, NETWORK_EXCEPTION among them."""
    assert refusal(code, 12).code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_is_final_is_told(code: ErrorCode, version: int, told: ErrorCode) -> None:
    assert refusal(code, version).code is told


def test_a_group_speaks_of_its_coordinator_not_of_topics_that_the_client_did_not_name() -> None:
    told = {
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.CONCURRENT_TRANSACTIONS,
    }
    assert {code: txn_offset_commit.code_for(code, 5) for code in told} == told
