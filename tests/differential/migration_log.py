"""What a coordinator writes to `__consumer_offsets` while a live group moves to the consumer protocol and back.

python -m tests.differential.migration_log        tells the story to Kafka and writes recorded/logs/migration.json
"""

from __future__ import annotations

import json
import tempfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers import start_kafka
from bench.kafka_jars import KAFKA_VERSION
from tests.differential.cases_consumer_groups import Member
from tests.differential.cases_group_admin import TOPIC
from tests.differential.cases_migration import LEAVE_EPOCH, Classic, settle
from tests.differential.group_log import SETTINGS, Log, read_log
from tests.differential.talk import Talk

RECORDED = Path(__file__).parent / "recorded" / "logs" / "migration.json"
GROUP = "orders"
FIND_COORDINATOR = 10
PARTITIONS = 2


class Told(NamedTuple):
    topic_id: uuid.UUID
    member_id: str
    """Of the member of the classic protocol, which the coordinator has made up."""
    log: Log


def tell(port: int) -> Told:
    """A classic member has everything, one of the consumer protocol comes, shares, and leaves again."""
    talk = Talk(port, {})
    talk.create(TOPIC, partitions=PARTITIONS)
    talk.look(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
    old = Classic(talk, GROUP, "old")
    old.alone({TOPIC: [0, 1]})
    new = Member(talk, 1, GROUP, "new")
    new.join(tell=False)
    settle(talk, (old, 1), (new, 1))
    new.beat(tell=False, member_epoch=LEAVE_EPOCH)
    talk.close()
    return Told(talk.ids[TOPIC], old.id, read_log(port))


def recorded() -> Told:
    content: dict[str, Any] = json.loads(RECORDED.read_text())
    assert content["kafka"] == KAFKA_VERSION, f"recorded with Kafka {content['kafka']}"
    log = [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in content["log"]]
    return Told(uuid.UUID(content["topic_id"]), content["member_id"], log)


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = start_kafka(Path(root) / "kafka", settings=SETTINGS)
        try:
            told = tell(broker.port)
        finally:
            broker.discard()
    RECORDED.parent.mkdir(exist_ok=True)
    rows = [[key.hex(), None if value is None else value.hex()] for key, value in told.log]
    content = {"kafka": KAFKA_VERSION, "topic_id": str(told.topic_id), "member_id": told.member_id, "log": rows}
    RECORDED.write_text(json.dumps(content, indent=0) + "\n")
    print(f"{len(told.log)} records")


if __name__ == "__main__":
    main()
