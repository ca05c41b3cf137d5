"""Our files in the hands of Kafka's DumpLogSegments, which checks CRCs, offsets and indexes while it prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.kafka_server import kafka_tool
from tests.interop.conftest import OurLife
from tests.interop.conversation import CODECS
from tests.scenarios.share_coordinator_client import ShareCoordinatorClient, topic_id_of
from tests.scenarios.sink_clients import Driver, Task
from tests.unit.partition.test_partition import World
from tests.unit.partition.test_transactions import end, send

import strandline
from strandline.coordinators.shares.share_state import SharePartitionKey, StateBatch
from strandline.errors import ErrorCode

pytestmark = pytest.mark.java

Dump = Callable[..., str]

COMPLAINTS = re.compile(
    r"mismatch|isvalid: false|corrupt|exception|error|out of order|not consecutive|invalid|larger than", re.IGNORECASE
)


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """Return what runs Kafka's tool and rejects its complaints."""
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no tools of Apache Kafka: {reason}")
    logs = tmp_path_factory.mktemp("dump-logs")

    def run(files: Sequence[Path], *options: str) -> str:
        assert files
        names = ",".join(map(str, sorted(files)))
        output = kafka_tool("org.apache.kafka.tools.DumpLogSegments", *options, "--files", names, logs=logs)
        complaint = COMPLAINTS.search(output)
        assert complaint is None, output[max(0, complaint.start() - 500) : complaint.end() + 500]
        return output

    return run


def test_every_record_is_read(our_life: OurLife, dump: Dump) -> None:
    for (topic, index), records in our_life.ledger.records.items():
        files = list((our_life.data / f"{topic}-{index}").glob("*.log"))
        assert len(files) > 3, "rolls happened"
        output = dump(files, "--deep-iteration", "--print-data-log")
        offsets = [int(each) for each in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
        assert offsets == sorted(records)
        assert set(re.findall(r"compresscodec: (\w+)", output)) == set(CODECS)
        assert set(re.findall(r"isvalid: (\w+)", output)) == {"true"}
        payloads = re.findall(r"^\| offset: (\d+) .* payload: (.*)$", output, re.MULTILINE)
        for offset, payload in payloads[::11]:
            value = records[int(offset)].value
            assert value is not None
            assert payload.strip() == value.decode().strip()


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_indexes_agree_with_their_logs(our_life: OurLife, dump: Dump, option: str) -> None:
    files = [*our_life.data.glob("orders-*/*.index"), *our_life.data.glob("orders-*/*.timeindex")]
    assert sum(path.stat().st_size for path in files) > 1000
    output = dump(files, option)
    if option == "--index-sanity-check":
        # Of an index without entries, as a young segment has, the tool says just that.
        sound = {path for path in files if f"{path} passed sanity check" in output or f"{path} is empty" in output}
        assert sound == set(files), output


def test_producer_snapshots(our_life: OurLife, dump: Dump) -> None:
    output = dump(list(our_life.data.glob("orders-0/*.snapshot")))
    producers = re.findall(r"producerId: (\d+) producerEpoch: (\d+)", output)
    assert len({producer for producer, _ in producers}) == 5, "one for each codec"
    assert re.search(r"lastSequence|lastSeq", output)


def test_aborted_transactions(dump: Dump, tmp_path: Path) -> None:
    """A log with transactions, through our engine: markers and `.txnindex` files, read by Kafka."""
    world = World(tmp_path, flush_mode="async", segment_bytes=600)
    for number in range(20):
        send(world, 1, number)
        send(world, 2, number)
        end(world.partition, 1, commit=number % 4 == 0, coordinator_epoch=number)
        end(world.partition, 2, commit=False, coordinator_epoch=number)
    log = world.partition.log
    wanted = [
        f"version: 0 producerId: {index.producer_ids[at]} firstOffset: {index.first_offsets[at]} "
        f"lastOffset: {index.last_offsets[at]} lastStableOffset: {index.stable_offsets[at]}"
        for segment in log.segments
        for index in [segment.transaction_index]
        for at in range(len(index))
    ]
    log.close()
    output = dump(list(log.directory.glob("*.txnindex")))
    assert len(wanted) == 35
    assert re.findall(r"^version: 0 producerId: .*$", output, re.MULTILINE) == wanted
    output = dump(list(log.directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    assert len(re.findall(r"endTxnMarker: COMMIT", output)) == 5
    assert re.findall(r"endTxnMarker: ABORT coordinatorEpoch: (\d+)", output)[-1] == "19"
    output = dump(list(log.directory.glob("*.snapshot")))
    assert "coordinatorEpoch: 19" in output


def test_the_metadata_log(our_life: OurLife, dump: Dump) -> None:
    directory = our_life.data / "__cluster_metadata-0"
    output = dump(list(directory.glob("*.log")), "--cluster-metadata-decoder")
    kinds = set(re.findall(r'"type":"(\w+)"', output))
    assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "PRODUCER_IDS_RECORD"} <= kinds
    assert '"name":"orders"' in output


def test_committed_offsets(our_life: OurLife, dump: Dump) -> None:
    output = dump(list((our_life.data / "__consumer_offsets-0").glob("*.log")), "--offsets-decoder")
    for (topic, index), offset in our_life.committed.items():
        assert re.search(rf'"group":"shipping","topic":"{topic}","partition":{index}\b', output)
        assert f'"offset":{offset}' in output


def test_decisions_about_sinks_are_passed_over(dump: Dump, tmp_path: Path) -> None:
    """A key that is none of Kafka's in `__transaction_state`: its tools name it as such, and read the rest."""
    with strandline.embedded(data=tmp_path / "data", properties={"transaction.state.log.num.partitions": "1"}) as node:
        node.create_topic("sink")
        driver, task = Driver([node.port], "sink"), Task(node.bootstrap, "sink")
        for batch_id in range(2):
            task.write("sink", f"{batch_id}")
            assert driver.commit(batch_id, task).error_code == ErrorCode.NONE
            task.close()
    output = dump(list((tmp_path / "data" / "__transaction_state-0").glob("*.log")), "--transaction-log-decoder")
    assert task.transactional_id in output
    assert output.count('"transactionStatus":4') == 2
    assert len(re.findall(r"Unknown record type 20000 at offset \d+, skipping", output)) == 2


def test_states_of_share_groups(dump: Dump, tmp_path: Path) -> None:
    properties = {"share.coordinator.state.topic.num.partitions": "1"}
    with strandline.embedded(data=tmp_path / "data", properties=properties) as node:
        node.create_topic("jobs")
        topic_id = topic_id_of([node.port], "jobs")
        share = ShareCoordinatorClient([node.port], SharePartitionKey("workers", topic_id, 0))
        assert share.initialize(epoch=3, start=40) is ErrorCode.NONE
        assert share.write(StateBatch(40, 44, 2, 1), StateBatch(45, 45, 0, 2), epoch=3, count=5) is ErrorCode.NONE
        assert share.delete() is ErrorCode.NONE
    output = dump(list((tmp_path / "data" / "__share_group_state-0").glob("*.log")), "--share-group-state-decoder")
    keys = re.findall(r"key: (\{.*?\}\}) payload", output)
    assert [json.loads(key)["type"] for key in keys] == ["0", "1", "0"], output
    assert all(json.loads(key)["data"]["groupId"] == "workers" for key in keys)
    assert '"stateEpoch":3,"leaderEpoch":0,"startOffset":40' in output
    assert '"firstOffset":45,"lastOffset":45,"deliveryState":0,"deliveryCount":2' in output
