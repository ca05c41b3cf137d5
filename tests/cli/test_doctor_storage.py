"""What `doctor` and `cluster health` say of the files of a cluster: what brokers told in, findings out."""

from __future__ import annotations

from typing import Any

from strandline.cli.doctor.findings import Finding, Level
from strandline.cli.doctor.storage import findings_of
from strandline.codec.messages.describe_storage_response import (
    DescribeStorageResponse,
    StoredDamage,
    StoredPartition,
)

NOW_MS = 1_800_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MIB, GIB = 1 << 20, 1 << 30


def part(topic: str = "orders", **facts: Any) -> StoredPartition:
    known: dict[str, Any] = {
        "cleanup_policy": "delete",
        "is_leader": True,
        "retention_ms": 7 * DAY_MS,
        "segment_ms": 7 * DAY_MS,
        "segment_bytes": GIB,
        "size_bytes": GIB,
    }
    return StoredPartition(topic=topic, **(known | facts))


def answer(*parts: StoredPartition, node_id: int = 1, **facts: Any) -> DescribeStorageResponse:
    known: dict[str, Any] = {"now_ms": NOW_MS, "started_ms": NOW_MS - HOUR_MS, "usable_bytes": 100 * GIB}
    return DescribeStorageResponse(node_id=node_id, partitions=list(parts), **(known | facts))


def only(*answers: DescribeStorageResponse) -> Finding:
    (found,) = findings_of(list(answers))
    return found


def test_a_cluster_that_is_well() -> None:
    found = only(answer(part(), part("prices", cleanup_policy="compact", cleaning_state="idle")))
    assert (found.level, found.text) == (Level.OK, "2 logs: no damage is known, and nothing keeps the cleaner")


def test_damage_is_a_problem_that_says_where() -> None:
    damage = StoredDamage(
        base_offset=900, end_offset=1_000, what="the checksum is wrong", state="this is the only copy"
    )
    found = only(answer(part(partition=3, damages=[damage]), node_id=2))
    assert (found.level, found.check) == (Level.PROBLEM, "damage")
    assert found.text == (
        "orders-3 on broker 2 is damaged: offsets 900–999: the checksum is wrong; this is the only copy"
    )


def test_a_log_that_is_being_recovered_is_not_a_problem() -> None:
    found = only(answer(part(), part("prices", error_code=9, error_message="recovering: 0 of 2 partitions, 0 of 9 MB")))
    assert found.level is Level.OK


def test_a_log_that_is_offline_is_a_problem() -> None:
    found = only(answer(part(error_code=56, error_message="[Errno 5] Input/output error")))
    assert (found.level, found.check) == (Level.PROBLEM, "offline-log")
    assert found.text == "orders-0 on broker 1 is offline: Input/output error"


def test_much_damage_is_not_told_line_by_line() -> None:
    damages = [StoredDamage(base_offset=at, end_offset=at + 1) for at in range(50)]
    found = list(findings_of([answer(part(damages=damages))]))
    assert len(found) == 6
    assert found[-1].text == "45 more damaged places"


def test_cleaning_that_stopped_is_told_by_its_reason() -> None:
    stopped = {"cleanup_policy": "compact", "cleaning_state": "set aside"}
    full = [part("prices", partition=n, cleaning_reason="the disk is full", **stopped) for n in range(5)]
    other = part("users", cleaning_reason="batch 7 is corrupt", **stopped)
    first, second = findings_of([answer(*full, other)])
    assert first.level is second.level is Level.PROBLEM
    assert first.text == (
        "compaction of prices-0 on broker 1, prices-1 on broker 1, prices-2 on broker 1 and 2 more partitions is set "
        "aside: the disk is full"
    )
    assert second.text == "compaction of users-0 on broker 1 is set aside: batch 7 is corrupt"


def test_a_cleaner_that_is_off_is_a_warning_where_something_is_compacted() -> None:
    off = part("prices", cleanup_policy="compact", cleaning_state="off")
    found = only(answer(part(), off))
    assert (found.level, found.text) == (Level.WARNING, "the cleaner of broker 1 is off, so prices-0 only grows")
    assert found.advice == "set log.cleaner.enable=true in the properties of broker 1, and start it again"


def test_a_disk_that_fills_before_retention_frees_room() -> None:
    # 36 GiB in an hour are 10 MiB a second, of which 7 days would be 6 TiB.
    found = only(answer(part(bytes_in=36_000 * MIB)))
    assert (found.level, found.check) == (Level.PROBLEM, "disk-forecast")
    assert "the disk of broker 1 is full in 2 h 50 min at the rate since it started (10 MiB a second)" in found.text
    assert "100 GiB are left, and retention lets logs grow by 5." in found.text
    assert "orders (1 GiB)" in found.advice


def test_a_disk_that_fills_later_is_a_warning_and_much_later_nothing() -> None:
    def level(bytes_in: int) -> Level:
        return only(answer(part(bytes_in=bytes_in, retention_ms=-1))).level

    assert (level(3_600 * MIB), level(360 * MIB), level(36 * MIB)) == (Level.WARNING, Level.WARNING, Level.OK)


def test_what_retention_keeps_within_the_room_is_well() -> None:
    assert only(answer(part(bytes_in=36_000 * MIB, retention_ms=HOUR_MS))).level is Level.OK


def test_a_follower_grows_as_its_leader_does() -> None:
    leader = answer(part(bytes_in=36_000 * MIB), usable_bytes=100_000 * GIB)
    follower = answer(part(is_leader=False), node_id=2)
    found = only(leader, follower)
    assert "the disk of broker 2 is full" in found.text


def test_a_broker_that_has_just_started_is_not_judged_by_its_rate() -> None:
    assert only(answer(part(bytes_in=36_000 * MIB), started_ms=NOW_MS - 60_000)).level is Level.OK
