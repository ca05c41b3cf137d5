"""Which batch of Spark read a record: what commits say, and what they do not say."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.clients.positions import commit
from tests.console.asgi_browser import AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.group_positions import BatchNote, batch_note
from strandline.console.pages.topic.read_by import SeenCommit, how_it_was_read, of_position
from strandline.local.embedded_broker import EmbeddedBroker

API = "/api/v1/clusters/dev/topics/clicks/0"


def batch(number: int, begin: int | None, end: int) -> SeenCommit:
    return SeenCommit(end, 1_700_000_000_000 + 1000 * number, BatchNote("shop", number, begin).text())


@pytest.mark.parametrize(
    ("offset", "commits", "number", "text"),
    [
        (15, [batch(6, 0, 10), batch(7, 10, 20), batch(8, 20, 30)], 7, "batch 7 of query shop, committed at"),
        # Compacted: only the newest is there.
        (15, [batch(8, 20, 30)], None, "a batch before batch 8 of query shop, by"),
        # One commit for several batches, because the cluster did not answer in between.
        (12, [batch(5, 0, 10), batch(8, 20, 30)], None, "a batch after batch 5 and before batch 8 of query shop, by"),
        (3, [batch(0, None, 10)], 0, "batch 0 of query shop"),
        (3, [batch(4, None, 10)], None, "a batch up to batch 4 of query shop"),
        # A consumer names no batch.
        (12, [SeenCommit(10, 0), SeenCommit(20, 60_000)], None, "between 1970-01-01 00:00:00 UTC and 1970-01-01 00:01"),
        (12, [SeenCommit(20, 60_000)], None, "by 1970-01-01 00:01:00 UTC; no earlier commit is kept"),
        # A reset went back: the record was read again after it.
        (12, [SeenCommit(20, 0), SeenCommit(5, 1000), SeenCommit(13, 2000)], None, "between 1970-01-01 00:00:01 UTC"),
        (40, [batch(8, 20, 30)], None, ""),
        (1, [], None, ""),
    ],
)
def test_commits_tell_which_batch_read_a_record(
    offset: int, commits: list[SeenCommit], number: int | None, text: str
) -> None:
    told = how_it_was_read(offset, commits)
    assert told["batch"] == number
    assert told["text"].startswith(text)
    assert bool(told["text"]) == bool(text)


@pytest.mark.parametrize(
    "text", ["", None, "null", "[]", "{", '{"batch": 1}', '{"query": "x", "batch": true}', "[" * 9999]
)
def test_other_metadata_is_no_batch(text: str | None) -> None:
    assert batch_note(text) is None


def test_the_newest_position_is_enough_for_its_own_batch() -> None:
    note = BatchNote("shop", 7, 10)
    assert batch_note(note.text()) == note
    told = of_position(15, 20, note.text())
    assert told is not None
    assert told["batch"] == 7
    assert of_position(5, 20, note.text()) is None
    assert of_position(20, 20, note.text()) is None


async def test_the_page_of_a_record_names_query_and_batch(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    pytest.importorskip("pyspark")
    from strandline.spark.positions import GroupPositions

    make_topic(broker.client_config, "clicks")
    producer = Producer(broker.client_config)
    for number in range(40):
        producer.produce("clicks", b"%d" % number)
    producer.flush(30)
    client = ClusterClient(ClientSettings(broker.bootstrap))
    group = GroupPositions(broker.bootstrap, "spark.shouting")
    place = ("clicks", 0)
    for number in range(3):
        note = BatchNote("shouting", number + 4, 10 * number)
        group.reach({place: 10 * number + 10}, {place: note})
        # A batch that read nothing here does not change who brought the position here.
        group.reach({place: 10 * number + 10}, {place: BatchNote("shouting", 99, 10 * number + 10)})
        group.commit(client)
    client.close()
    for offset in (5, 25):
        commit(broker.bootstrap, "plain", "clicks", offset)

    async def told(offset: int) -> dict[str, str]:
        groups = (await browser.get(f"{API}/{offset}")).json["journey"]["groups"]
        return {each["group"]: (each["read"] or {}).get("text", "") for each in groups}

    assert (await told(3))["spark.shouting"].startswith("batch 4 of query shouting, committed at")
    newest = await told(25)
    assert newest["spark.shouting"] == "batch 6 of query shouting"
    assert newest["plain"] == "", "it has not read the record"
    assert (await told(15))["plain"].startswith("between ")
    assert (await told(35))["spark.shouting"] == ""
    page = await browser.get("/c/dev/topics/clicks/0/15")
    assert "batch 5 of query shouting, committed at" in page.words
