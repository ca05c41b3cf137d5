"""Asks Apache Kafka every question and writes the answers to recorded/.

python -m tests.differential.record
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.brokers import start_kafka
from tests.differential import (
    group_conversation,
    group_log,
    migration_log,
    recording,
    rights_recording,
    transaction_conversation,
)
from tests.differential.brokers import kafka_on_stage
from tests.differential.cases import CASES


def main() -> None:
    with tempfile.TemporaryDirectory() as root, kafka_on_stage(Path(root)) as (port, ids):
        outcomes = recording.run(port, ids, CASES)
    recording.save(CASES, outcomes)
    print(f"{len(outcomes)} cases recorded")
    with tempfile.TemporaryDirectory() as root:
        broker = start_kafka(Path(root) / "kafka", settings=group_conversation.SETTINGS)
        try:
            group_conversation.record(group_conversation.talk(broker))
        finally:
            broker.discard()
    group_log.main()
    migration_log.main()
    transaction_conversation.main()
    rights_recording.main()


if __name__ == "__main__":
    main()
