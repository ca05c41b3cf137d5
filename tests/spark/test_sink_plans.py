"""What is noted with a batch where it is committed, and how a batch that is run again is known by it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.sink_ground import Query, counts, note, once, options_for, until

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.sink.failures import SinkRefused


@pytest.fixture(autouse=True)
def _closed_pools() -> Iterator[None]:
    yield
    Query.close_all()


def test_what_a_batch_read_is_kept_with_it(
    broker: EmbeddedBroker, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic(topic)
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    query = Query(options_for(broker.bootstrap, topic, checkpointLocation=f"file:{tmp_path}"))
    for batch in range(2):
        (offsets / str(batch)).write_text(f"v1\n{batch}")
        query.commit(batch, query.task(batch, 0, [f"{batch}"]))
        kept = json.loads(note(broker.bootstrap, query.sink_id))
        assert kept == {"offsets": f"v1\n{batch}", "before": f"v1\n{batch - 1}" if batch else None}
    # A batch without rows read something, too.
    (offsets / "2").write_text("v1\n2")
    query.commit(2, query.task(2, 0, []))
    assert json.loads(note(broker.bootstrap, query.sink_id))["offsets"] == "v1\n2"
    capfd.readouterr()
    for batch in (3, 4):
        (offsets / str(batch)).write_text("v1\n" + "3" * 600_000)
        query.commit(batch, query.task(batch, 0, [f"{batch}"]))
        assert note(broker.bootstrap, query.sink_id) == b""
    assert capfd.readouterr().err.count("more than the broker keeps with it") == 1
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("0", "1", "3", "4"))


def test_a_plan_is_known_by_what_was_noted_whatever_clocks_say(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """A driver dies behind its commit; the next one runs the batch again, on a machine with another time."""
    broker.create_topic(topic)
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    query = Query(options_for(broker.bootstrap, topic, checkpointLocation=str(tmp_path)))
    hour_ms = 3_600_000
    now_ms = time.time_ns() // 1_000_000
    plan = offsets / "7"
    plan.write_text(f'v1\n{{"batchTimestampMs":{now_ms + hour_ms}}}\n{{"in":{{"0":10}}}}')
    query.commit(7, query.task(7, 0, ["a"]))
    query.commit(7, query.task(7, 0, ["a"]))
    plan.write_text(f'v1\n{{"batchTimestampMs":{now_ms - hour_ms}}}\n{{"in":{{"0":12}}}}')
    with pytest.raises(SinkRefused, match="the checkpoint is older than the log"):
        query.commit(7, query.task(7, 0, ["a", "b"]))
    until("the markers", lambda: counts(broker.bootstrap, topic) == once("a"))
