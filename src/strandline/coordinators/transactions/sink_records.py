"""What was decided last for a sink, as a record of `__transaction_state`.

The number of its key is none of Kafka's, whose coordinator and tools pass over keys that they do not know.
"""

from __future__ import annotations

import struct
from typing import Final

from strandline.codec.internal_records import (
    TRANSACTION_STATE,
    decode_coordinator_record,
    encode_coordinator_key,
    encode_coordinator_value,
)
from strandline.codec.messages.sink_decision_key import SinkDecisionKey
from strandline.codec.messages.sink_decision_value import CommittedTransaction, SinkDecisionValue
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.transactions.sinks import BatchDecision, TaskTransaction
from strandline.ids import sink_key

_KEY_ID: Final = struct.pack(">h", SinkDecisionKey.API_KEY)


def is_of_sink(key: bytes) -> bool:
    return key[:2] == _KEY_ID


def decision_record(decision: BatchDecision) -> CoordinatorRecord:
    # Every id of the sink begins alike; what tells them apart is enough.
    begin = len(sink_key(decision.sink_id))
    value = SinkDecisionValue(
        batch_id=decision.batch_id,
        decided_ms=decision.decided_ms,
        transactions=[
            CommittedTransaction(name=transactional_id[begin:], producer_id=producer_id, producer_epoch=epoch)
            for transactional_id, producer_id, epoch in decision.members
        ],
        note=decision.note,
    )
    return CoordinatorRecord(_key_of(decision.sink_id), encode_coordinator_value(value))


def sink_tombstone(sink_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key_of(sink_id), None)


def _key_of(sink_id: str) -> bytes:
    return encode_coordinator_key(SinkDecisionKey(sink_id=sink_id))


def decode_decision(key: bytes, value: bytes | None) -> tuple[str, BatchDecision | None]:
    """Return the sink and its last decision; None deletes the sink. Raises as `decode_transaction`."""
    key_message, value_message = decode_coordinator_record(key, value, topic=TRANSACTION_STATE)
    assert isinstance(key_message, SinkDecisionKey)
    sink_id = key_message.sink_id
    if value_message is None:
        return sink_id, None
    assert isinstance(value_message, SinkDecisionValue)
    begin = sink_key(sink_id)
    members = tuple(
        TaskTransaction(begin + each.name, each.producer_id, each.producer_epoch) for each in value_message.transactions
    )
    note = bytes(value_message.note)
    return sink_id, BatchDecision(sink_id, value_message.batch_id, value_message.decided_ms, members, note)
