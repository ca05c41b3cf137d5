"""What retention, the cleaner and the scrubber did is in the metrics, and it is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.test_topic_scrub import flip
from tests.cli.test_topic_storage import fill
from tests.clients.client import until
from tests.scenarios.test_observability import Figures, get

from strandline.testing import embedded

HOUR_MS = 3_600_000
PROPERTIES = {"http.listener": "127.0.0.1:0", "log.retention.check.interval.ms": "100"}


@pytest.mark.slow
def test_what_was_deleted_compacted_and_found_damaged(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data", properties=PROPERTIES) as broker:
        cli = CommandLine(broker.bootstrap)

        def figures() -> Figures:
            return Figures(get(broker, "/metrics").body)

        cli.ok("topic", "create", "orders", "-c", "segment.bytes=1048576", "-c", "retention.ms=3600000")
        fill(broker.bootstrap, "orders", 2.5, age_ms=2 * HOUR_MS)
        until("retention", lambda: figures().of("strandline_retention_deleted_segments_total") == 3)
        assert figures().of("strandline_retention_deleted_bytes_total") > 2.5 * 10**6

        cli.ok("topic", "create", "prices", "-c", "segment.bytes=1048576", "-c", "cleanup.policy=compact")
        fill(broker.bootstrap, "prices", 1.5)
        fill(broker.bootstrap, "prices", 1.5)
        cli.ok("topic", "compact", "prices", "--now")
        cli.ok("topic", "scrub", "prices", "--now")
        seen = figures()
        assert seen.of("strandline_log_cleaner_cleanings_total") >= 1
        assert seen.of("strandline_log_cleaner_read_bytes_total") > 3 * 10**6
        assert 1.5 * 10**6 < seen.of("strandline_log_cleaner_written_bytes_total") < 3 * 10**6
        assert seen.of("strandline_log_dirty_ratio", topic="prices", partition="0") == 0
        assert seen.of("kafka_log_logcleanermanager_uncleanable_partitions") == 0
        assert seen.of("strandline_log_scrubs_total") == 1
        assert seen.of("strandline_log_scrubbed_bytes_total") > 1.5 * 10**6
        assert seen.of("strandline_log_damaged_segments") == 0

        broker.stop()
        segment = max((tmp_path / "data" / "prices-0").glob("*.log"), key=lambda path: path.stat().st_size)
        flip(segment, 250_000)
        broker.start()
        fill(broker.bootstrap, "prices", 1.5)
        assert cli.run("topic", "scrub", "prices", "--now").status == 5
        assert cli.run("topic", "compact", "prices", "--now").status == 1
        seen = figures()
        assert seen.of("strandline_log_damaged_segments") == 1
        assert seen.of("strandline_log_damages_found_total") == 1
        assert seen.of("kafka_log_logcleanermanager_uncleanable_partitions") == 1
        assert seen.of("kafka_log_logcleanermanager_uncleanable_bytes") > 1.5 * 10**6
