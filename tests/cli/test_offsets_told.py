"""What an AdminClient says of offsets, when the leader dies under it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException

from strandline.cli.topic.topics import told_offset


def told(offset: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=offset))
    return future


@pytest.mark.parametrize("offset", [-1, 0, 7])
def test_an_offset_is_taken_as_it_is(offset: int) -> None:
    assert told_offset(told(offset)) == offset


def test_an_offset_that_is_none_is_no_answer() -> None:
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        told_offset(told(OFFSET_INVALID))
