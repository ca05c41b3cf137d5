"""Asks Apache Kafka every question and writes the answers to recorded/.

python -m tests.differential.record
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.differential import recording
from tests.differential.brokers import kafka_on_stage
from tests.differential.cases import CASES


def main() -> None:
    with tempfile.TemporaryDirectory() as root, kafka_on_stage(Path(root)) as (port, ids):
        outcomes = recording.run(port, ids, CASES)
    recording.save(CASES, outcomes)
    print(f"{len(outcomes)} cases recorded")


if __name__ == "__main__":
    main()
