"""Formatting a directory: what is written, in which order, and what is refused in which words."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from strandline.broker.formatting import (
    Formatted,
    InitialController,
    format_directory,
    parse_add_scram,
    parse_initial_controllers,
    standalone,
)
from strandline.broker.kraft.metadata_snapshots import MetadataSnapshots
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.log.disk import RealDisk
from strandline.quorum.image.snapshot_format import BOOTSTRAP, SnapshotReader
from strandline.quorum.raft.state_files import MetaProperties, uuid_text
from strandline.security.sasl.scram import SCRAM_SHA_256, salted_password

CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0cw"
FIRST, SECOND = UUID(int=1 << 64), UUID(int=2 << 64)
COMBINED = {
    "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "h:9093,i:9093",
}
TWO = [InitialController(1, "h", 9093, FIRST), InitialController(2, "i", 9093, SECOND)]


def formatted(
    directory: Path,
    controllers: list[InitialController],
    credentials: Sequence[UserScramCredentialRecord] = (),
    *,
    cluster_id: str = CLUSTER_ID,
    ignore_formatted: bool = False,
    **properties: str,
) -> Formatted:
    given = COMBINED | {name.replace("_", "."): value for name, value in properties.items()}
    rng = random.Random(1)
    return format_directory(
        BrokerConfig.load("", given | {"log.dirs": str(directory)}),
        cluster_id,
        controllers,
        disk=RealDisk(),
        now_ms=1_000,
        new_uuid=lambda: UUID(int=rng.getrandbits(128)),
        ignore_formatted=ignore_formatted,
        credentials=credentials,
    )


def test_the_first_voters_stand_in_the_metadata_with_their_directories(tmp_path: Path) -> None:
    done = formatted(tmp_path / "d", TWO)
    assert done.meta.directory_id == FIRST
    assert MetaProperties.parse((tmp_path / "d" / "meta.properties").read_text()) == done.meta
    snapshots = MetadataSnapshots(RealDisk(), tmp_path / "d" / "__cluster_metadata-0")
    reader = SnapshotReader(snapshots.read_whole(BOOTSTRAP))
    list(reader.batches())
    assert reader.voters is not None
    assert [(voter.voter_id, voter.voter_directory_id) for voter in reader.voters.voters] == [(1, FIRST), (2, SECOND)]
    (endpoint,) = reader.voters.voters[1].endpoints
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "i", 9093)
    assert reader.kraft_version == 1


def test_voters_of_the_configuration_need_no_record(tmp_path: Path) -> None:
    voters = "1@h:9093,2@i:9093"
    formatted(tmp_path / "d", [], controller_quorum_voters=voters, controller_quorum_bootstrap_servers="")
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["meta.properties"]
    with pytest.raises(InvalidConfig, match=r"controller\.quorum\.voters names the voters already"):
        formatted(tmp_path / "e", TWO, controller_quorum_voters=voters, controller_quorum_bootstrap_servers="")


def test_a_broker_that_joins_is_not_told_who_votes(tmp_path: Path) -> None:
    formatted(tmp_path / "d", [], process_roles="broker", node_id="7")
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["meta.properties"]
    with pytest.raises(InvalidConfig, match="is not told who votes"):
        formatted(tmp_path / "e", TWO, process_roles="broker", node_id="7")


def test_what_is_there_already(tmp_path: Path) -> None:
    formatted(tmp_path, TWO)
    before = (tmp_path / "meta.properties").read_bytes()
    with pytest.raises(InvalidConfig, match="say --ignore-formatted"):
        formatted(tmp_path, TWO)
    assert formatted(tmp_path, TWO, ignore_formatted=True).was_formatted
    other = uuid_text(UUID(int=99))
    with pytest.raises(InvalidConfig, match=f"belongs to cluster {CLUSTER_ID}, not to {other}"):
        formatted(tmp_path, TWO, cluster_id=other, ignore_formatted=True)
    with pytest.raises(InvalidConfig, match=r"belongs to node 1, and node\.id is 2"):
        formatted(tmp_path, TWO, node_id="2", ignore_formatted=True)
    assert (tmp_path / "meta.properties").read_bytes() == before


def test_a_controller_must_know_who_votes(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nothing says who votes"):
        formatted(tmp_path / "d", [])
    with pytest.raises(InvalidConfig, match="not among the initial controllers"):
        formatted(tmp_path / "d", TWO, node_id="3")
    assert not (tmp_path / "d").exists(), "nothing is written before everything is checked"


def test_a_standalone_controller_is_its_own_first_voter() -> None:
    assert standalone(BrokerConfig.load("", COMBINED), FIRST) == [InitialController(1, "h", 9093, FIRST)]
    advertised = COMBINED | {"advertised.listeners": "PLAINTEXT://x:1,CONTROLLER://y:2"}
    assert standalone(BrokerConfig.load("", advertised), FIRST) == [InitialController(1, "y", 2, FIRST)]
    with pytest.raises(InvalidConfig, match=r"needs process\.roles with controller"):
        standalone(BrokerConfig.load(""), FIRST)
    anywhere = COMBINED | {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    with pytest.raises(InvalidConfig, match="others cannot reach"):
        standalone(BrokerConfig.load("", anywhere), FIRST)


def test_initial_controllers_as_they_are_written() -> None:
    raw = f"1@h:9093:{uuid_text(FIRST)}, 2@[::1]:9094:{uuid_text(SECOND)}"
    assert parse_initial_controllers(raw) == [
        InitialController(1, "h", 9093, FIRST),
        InitialController(2, "::1", 9094, SECOND),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "1@h:9093",
        "h:9093",
        f"1@h:0:{uuid_text(FIRST)}",
        "1@h:1:short",
        f"x@h:1:{uuid_text(FIRST)}",
        "1@h:1:" + "!" * 22,
        f"1@h:1:{uuid_text(UUID(int=7))}",
    ],
)
def test_initial_controllers_that_are_none(raw: str) -> None:
    with pytest.raises(InvalidConfig, match="expected"):
        parse_initial_controllers(raw)


def test_a_controller_twice() -> None:
    with pytest.raises(InvalidConfig, match="twice"):
        parse_initial_controllers(f"1@h:1:{uuid_text(FIRST)},1@i:1:{uuid_text(SECOND)}")


def test_first_users_stand_in_the_metadata(tmp_path: Path) -> None:
    user = parse_add_scram("SCRAM-SHA-256=[name=alice,password=pencil,iterations=5000]", lambda: b"s" * 32)
    for name, controllers, kraft_version in (("d", TWO, 1), ("e", [], 0)):
        voters = {} if controllers else {"controller_quorum_voters": "1@h:9093,2@i:9093"}
        formatted(
            tmp_path / name,
            controllers,
            [user],
            **voters,
            controller_quorum_bootstrap_servers="h:9093" * bool(controllers),
        )
        snapshots = MetadataSnapshots(RealDisk(), tmp_path / name / "__cluster_metadata-0")
        reader = SnapshotReader(snapshots.read_whole(BOOTSTRAP))
        (record,) = [record for batch in reader.batches() for record in batch]
        assert (record.name, record.mechanism, record.iterations, record.salt) == ("alice", 1, 5000, b"s" * 32)
        assert reader.kraft_version == kraft_version


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = salted_password(SCRAM_SHA_256, "pencil", b"salt", 4096)
    text = base64.b64encode(salted).decode().rstrip("=")
    text += "=" * (-len(text) % 4)
    salt = base64.b64encode(b"salt").decode()
    by_salted = parse_add_scram(f"SCRAM-SHA-256=[name=a,saltedpassword={text},salt={salt}]", lambda: b"")
    by_password = parse_add_scram(f'SCRAM-SHA-256=[name="a",password="pencil",salt={salt}]', lambda: b"")
    assert by_salted.stored_key == by_password.stored_key
    assert by_salted.server_key == by_password.server_key


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("", "mechanism"),
        ("SCRAM-SHA-1=[name=a,password=hunter2]", "mechanism"),
        ("SCRAM-SHA-256", r"\[\.\.\.\]"),
        ("SCRAM-SHA-256=name=a,password=hunter2", r"\[\.\.\.\]"),
        ("SCRAM-SHA-256=[password=hunter2]", "no name"),
        ("SCRAM-SHA-256=[name=a]", "password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=AAAA]", "password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "salt"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,salt=%]", "base64"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=16385]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=many]", "iterations"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,rounds=1]", "cannot be read"),
        ("SCRAM-SHA-256=[name=a,hunter2]", "cannot be read"),
    ],
)
def test_users_that_cannot_be_added_and_no_password_shows(raw: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as refused:
        parse_add_scram(raw, lambda: b"salt")
    assert "hunter2" not in str(refused.value)
