"""Verdicts on the ids of a topic: none is final that a record of `_schemas` could change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.registry.validated_topics import batch_of, schema_record, with_id

from strandline.broker.validation.topic_validation import TopicValidation
from strandline.codec.record_batch import HEADER_SIZE
from strandline.config.topic_config import TopicConfig
from strandline.partition.record_validation import RecordFault
from strandline.schemas.records import SchemaRecord, delete_subject_record
from strandline.schemas.registered_ids import RegisteredIds


def faults_of(validation: TopicValidation, value: bytes) -> list[RecordFault]:
    batch = batch_of([value])
    faults: list[RecordFault] = []
    validation.check(batch, HEADER_SIZE, len(batch), 0, 1, 0, faults)
    return faults


@pytest.mark.parametrize("mode", ["id", "strict"])
def test_a_verdict_on_an_id_waits_for_all_that_is_registered(mode: str) -> None:
    registered = RegisteredIds(keeps_texts=True)
    topic: Any = SimpleNamespace(exists=True)
    config = TopicConfig(value_schema_validation=True, schema_validation=mode)
    validation = TopicValidation("t", config, registered, topic)
    registered.apply(SchemaRecord(*schema_record("elsewhere", 1, 7)))
    registered.apply(SchemaRecord(*schema_record("t-value", 1, 8)))
    for value, may_pass_later in ((with_id(7), True), (with_id(9), True), (b"raw", False)):
        (fault,) = faults_of(validation, value)
        assert fault.may_pass_later is may_pass_later
    assert faults_of(validation, with_id(8)) == []
    registered.apply(delete_subject_record("t-value", 1))
    (fault,) = faults_of(validation, with_id(8))
    assert (fault.may_pass_later, "was deleted" in fault.reason) == (True, True)
    registered.apply(SchemaRecord(*schema_record("t-value", 2, 7)))
    assert faults_of(validation, with_id(7)) == []
