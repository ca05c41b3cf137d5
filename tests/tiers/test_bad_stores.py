"""Stores that cannot be used: one sentence that says what to do, sound partitions served, nothing overwritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.tiers.tiered_nodes import (
    SEGMENT_BYTES,
    copies,
    fill,
    objects,
    properties,
    read,
    settings_of_tiered,
    wait_until,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.node_process import BrokerFailed


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"strandline.remote.store.url": "ftp://host/dir"}, r"begins with ftp://; use s3://, gs://, az://, file:///"),
        ({"strandline.remote.store.url": "file:///no/such/parent/dir"}, r"parent directory does not exist; create it"),
        ({"strandline.remote.store.url": "file:///proc/tier"}, r"file:///proc/tier"),
        ({"strandline.remote.store.options": "region"}, r"has 'region' without a value; expected name=value"),
        ({"strandline.remote.store.url": ""}, r"strandline\.remote\.store\.url"),
    ],
)
def test_a_store_that_cannot_be_opened_is_told_in_a_sentence(
    tmp_path: Path, changed: dict[str, str], sentence: str
) -> None:
    with (
        pytest.raises(BrokerFailed) as raised,
        strandline.embedded(data=tmp_path / "data", properties={**properties(tmp_path / "store"), **changed}),
    ):
        pass
    told = str(raised.value)
    assert re.search(sentence, told), told
    assert "Traceback" not in told


def errors_of(log: EmbeddedBroker) -> list[str]:
    return [line for line in log.stderr_text().splitlines() if "strandline.tiering" in line and "ERROR" in line]


def test_the_store_of_another_cluster_is_not_touched(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with strandline.embedded(data=tmp_path / "first", properties=properties(store)) as log:
        log.create_topic("orders", **settings_of_tiered())
        fill(log.bootstrap, ["orders"], [os.urandom(500) for _ in range(300)])
        wait_until(lambda: len(copies(store)) > 3, "segments are copied")
    before = {path: path.read_bytes() for path in objects(store)}
    with strandline.embedded(data=tmp_path / "second", properties=properties(store)) as log:
        log.create_topic("orders", **settings_of_tiered())
        values = [os.urandom(500) for _ in range(300)]
        fill(log.bootstrap, ["orders"], values)
        told = wait_until(lambda: errors_of(log), "the node says why it copies nothing")
        assert len(told) == 1, told
        assert "cluster" in told[0]
        assert [each[2] for each in read(log.bootstrap, "orders", 0, 300)] == values, "local records are served"
    assert {path: path.read_bytes() for path in objects(store)} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_without_rights_is_told(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o500)
    with (
        pytest.raises(BrokerFailed, match=re.escape(store.as_uri())),
        strandline.embedded(data=tmp_path / "data", properties=properties(store)),
    ):
        pass


def test_a_tiered_topic_needs_tiered_storage_at_each_start(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with strandline.embedded(data=tmp_path / "data", properties=properties(store)) as log:
        log.create_topic("orders", **settings_of_tiered())
    with (
        pytest.raises(BrokerFailed, match=r"topic orders is tiered, and remote\.log\.storage\.system\.enable is false"),
        strandline.embedded(data=tmp_path / "data"),
    ):
        pass


def test_a_plain_node_has_no_tiered_topics(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path / "data") as log:
        with pytest.raises(Exception, match="Tiered Storage functionality is disabled in the broker"):
            log.create_topic("orders", **settings_of_tiered())
        log.create_topic("plain", internal_segment_bytes=SEGMENT_BYTES)
