"""What the doctor says that records survive, from settings alone."""

from __future__ import annotations

import pytest

from strandline.cli.common.durability import Survival, survival

KAFKA = {"min.insync.replicas": "1", "flush.messages": str(2**63 - 1)}


def of(replicas: int, configs: dict[str, str | None], brokers: int = 3) -> Survival:
    return survival("orders", replicas, configs, brokers=brokers)


def test_one_replica_that_flushes_before_the_ack() -> None:
    for mode in ("auto", "ack"):
        found = of(1, {**KAFKA, "flush.mode": mode}, brokers=1)
        assert str(found) == (
            f"1 replica, flush.mode={mode} -> survives kill -9 and a power cut of the machine; "
            "does not survive the loss of the disk"
        )
        assert found.flaw == ""
    assert "more brokers" in of(1, {**KAFKA, "flush.mode": "auto"}, brokers=3).flaw


@pytest.mark.parametrize(
    ("configs", "advice"),
    [
        ({**KAFKA, "flush.mode": "async"}, "strandline config set --topic orders flush.mode=auto"),
        (KAFKA, "strandline config set --topic orders flush.messages=1"),
    ],
)
def test_one_replica_that_does_not(configs: dict[str, str | None], advice: str) -> None:
    found = of(1, configs, brokers=1)
    assert found.survives == "kill -9 of the broker"
    assert "power cut" in found.loses
    assert found.advice == advice


def test_flushing_every_record_is_as_good_in_any_mode() -> None:
    assert "power cut" in of(1, {"flush.messages": "1"}, brokers=1).survives
    assert "power cut" in of(1, {"flush.messages": "1", "flush.mode": "async"}, brokers=1).survives


def test_replicas_survive_machines() -> None:
    found = of(3, {"min.insync.replicas": "2", "flush.mode": "auto"})
    assert found.survives.startswith("the loss of 1 machine; of 2 machines while all replicas are in sync")
    assert found.loses == "a power cut of all its machines at once"
    assert found.flaw == ""
    assert of(3, {"min.insync.replicas": "2", "flush.mode": "ack"}).loses == "the loss of every in-sync replica's disk"


def test_replicas_with_a_flaw() -> None:
    assert "acks=all may mean one replica" in of(3, {"min.insync.replicas": "1", "flush.mode": "auto"}).flaw
    assert "one broker down stops acks=all" in of(3, {"min.insync.replicas": "3", "flush.mode": "auto"}).flaw
    unclean = of(3, {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
    assert "may go" in unclean.loses
    assert "unset" in unclean.advice


def test_more_in_sync_than_there_are_means_all_of_them() -> None:
    found = of(1, {"min.insync.replicas": "2", "flush.mode": "auto"})
    assert found == of(1, {"min.insync.replicas": "1", "flush.mode": "auto"})
