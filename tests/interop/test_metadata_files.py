"""The metadata quorum in the hands of Kafka's tools: one reads its log and its snapshots, one describes it."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.kafka_server import kafka_tool
from tests.interop.kafka_tools import Tools
from tests.interop.test_our_files import COMPLAINTS
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.kraft.metadata_quorum import MetadataQuorum, QuorumSettings
from strandline.broker.kraft.metadata_snapshots import write_bootstrap
from strandline.codec.messages.topic_record import TopicRecord
from strandline.log.disk import RealDisk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.quorum.raft.state_files import uuid_text
from strandline.quorum.raft.voters import Voter, VoterSet

pytestmark = [pytest.mark.slow, pytest.mark.java]

DIRECTORY_ID = uuid.UUID(int=77)
TOPICS = 600


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a metadata log of ours, with the snapshot of its format and one of its image."""
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no tools of Apache Kafka: {reason}")
    data, disk, runtime = tmp_path_factory.mktemp("metadata") / "data", RealDisk(), ManualRuntime()
    data.mkdir()
    voters = VoterSet([Voter(1, "localhost", 9093, DIRECTORY_ID)])
    write_bootstrap(
        disk, data, voters=voters.record(), features={"metadata.version": 25}, kraft_version=1, now_ms=runtime.now_ms()
    )
    directory = LogDirectory(data, disk=disk, open_files_max=10)
    settings = QuorumSettings(node_id=1, directory_id=DIRECTORY_ID, cluster_id="a-cluster")
    metadata = MetadataQuorum(directory, runtime, Flusher(runtime), settings=settings)
    metadata.start()
    metadata.write_now(metadata.bootstrap_records)
    metadata.write_now([TopicRecord(name=f"topic-{each}", topic_id=uuid.UUID(int=1 + each)) for each in range(TOPICS)])
    metadata.make_snapshot()
    runtime.settle()
    metadata.close()
    directory.close(clean=True)
    return data / "__cluster_metadata-0"


def dump(files: list[Path], logs: Path) -> str:
    assert files
    names = ",".join(map(str, sorted(files)))
    output = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", names, logs=logs
    )
    complaint = COMPLAINTS.search(output)
    assert complaint is None, output[max(0, complaint.start() - 500) : complaint.end() + 500]
    return output


def test_the_log_with_the_records_of_its_quorum(files: Path, tmp_path: Path) -> None:
    output = dump(list(files.glob("*.log")), tmp_path)
    assert "LeaderChange" in output
    assert "KRaftVersion" in output
    assert uuid_text(DIRECTORY_ID) in output
    assert '"name":"metadata.version","featureLevel":25' in output
    assert output.count('"type":"TOPIC_RECORD"') == TOPICS


def test_a_snapshot(files: Path, tmp_path: Path) -> None:
    (snapshot,) = [path for path in files.glob("*.checkpoint") if not path.name.startswith("0" * 20)]
    assert re.fullmatch(r"\d{20}-\d{10}\.checkpoint", snapshot.name)
    output = dump([snapshot], tmp_path)
    for word in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert word in output, word
    assert output.count('"type":"TOPIC_RECORD"') == TOPICS
    assert set(re.findall(r"isvalid: (\w+)", output)) == {"true"}


def test_the_snapshot_of_the_format(files: Path, tmp_path: Path) -> None:
    output = dump([files / f"{0:020d}-{0:010d}.checkpoint"], tmp_path)
    assert "KRaftVoters" in output
    assert '"name":"metadata.version","featureLevel":25' in output
    assert "SnapshotFooter" in output


def test_the_quorum_is_described(tools: Tools, broker_id: str) -> None:
    def describe(what: str) -> str:
        return kafka_tool(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            "--bootstrap-server",
            tools.bootstrap,
            "describe",
            what,
            logs=tools.logs,
        )

    status = dict(re.findall(r"^(\w+): +(.*)$", describe("--status"), re.MULTILINE))
    assert status["LeaderId"] == broker_id
    assert int(status["HighWatermark"]) > 0
    assert f'"id": {broker_id}' in status["CurrentVoters"]
    (replica,) = re.findall(
        r"^(\d+)\s+(\S+)\s+(\d+)\s+(\d+)\s.*(Leader|Follower)", describe("--replication"), re.MULTILINE
    )
    assert (replica[0], replica[3], replica[4]) == (broker_id, "0", "Leader")
