"""What the acknowledged records of a topic survive, in plain words, from its settings (pure).

    orders: 1 replica, flush.mode=auto -> survives kill -9 and a power cut of the machine; does not survive the loss of
    the disk

It holds for records that were acknowledged with acks=all; acks=1 counts the leader alone, acks=0 no replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class Survival:
    """`flaw` is what a careful person would change, with `advice`; empty when nothing is weak for so many brokers."""

    terms: str
    survives: str
    loses: str
    flaw: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.terms} -> survives {self.survives}; does not survive {self.loses}"


def survival(topic: str, replicas: int, configs: Mapping[str, str | None], *, brokers: int) -> Survival:
    """Return what holds for a topic with so many replicas and these settings in force."""
    # More than there are replicas means all of them (KIP-966).
    in_sync_min = min(replicas, int(configs.get("min.insync.replicas") or 1))
    mode = configs.get("flush.mode")
    every_record = configs.get("flush.messages") == "1"
    # A cluster without flush.mode is Apache Kafka, where the system flushes when it likes.
    flushed = every_record or mode == "ack" or (mode == "auto" and replicas == 1)
    terms = _terms(replicas, in_sync_min, mode, every_record)
    unclean = (configs.get("unclean.leader.election.enable") or "").lower() == "true"
    if replicas == 1:
        return _single(topic, terms, flushed, brokers, has_mode=mode is not None)
    return _replicated(topic, terms, replicas, in_sync_min, mode, flushed, unclean)


def _terms(replicas: int, in_sync_min: int, mode: str | None, every_record: bool) -> str:
    parts = [f"{replicas} replica{'' if replicas == 1 else 's'}"]
    if replicas > 1 or in_sync_min > 1:
        parts.append(f"min.insync.replicas={in_sync_min}")
    if every_record:
        parts.append("flush.messages=1")
    elif mode is not None:
        parts.append(f"flush.mode={mode}")
    return ", ".join(parts)


def _single(topic: str, terms: str, flushed: bool, brokers: int, *, has_mode: bool) -> Survival:
    more = brokers > 1
    factor = min(3, brokers)
    advice = f"strandline cluster reassign --topic {topic} --replication-factor {factor}" if more else ""
    if flushed:
        flaw = "one replica, though there are more brokers" if more else ""
        return Survival(terms, "kill -9 and a power cut of the machine", "the loss of the disk", flaw, advice)
    setting = "flush.mode=auto" if has_mode else "flush.messages=1"
    return Survival(
        terms,
        "kill -9 of the broker",
        "a power cut of the machine (the last seconds), nor the loss of the disk",
        flaw="a power cut takes acknowledged records",
        advice=f"strandline config set --topic {topic} {setting}",
    )


def _replicated(
    topic: str, terms: str, replicas: int, in_sync_min: int, mode: str | None, flushed: bool, unclean: bool
) -> Survival:
    certain = in_sync_min - 1
    lost = f"the loss of {_machines(certain)}" if certain else "kill -9 of any broker"
    most = f"; of {_machines(replicas - 1)} while all replicas are in sync" if replicas - 1 > certain else ""
    power = "a power cut of all machines at once" if flushed else "a power cut of one machine"
    loses = "the loss of every in-sync replica's disk" if flushed else "a power cut of all its machines at once"
    if mode == "auto" and not flushed:
        power += ", and of the last in-sync one (it flushes when it is alone)"
    survives = f"{lost}{most}; {power}" if certain or most else f"kill -9 and {power}"
    if unclean:
        return Survival(
            terms,
            "kill -9 of any broker",
            "an election among replicas that are behind: acknowledged records may go",
            flaw="unclean.leader.election.enable=true trades records for uptime",
            advice=f"strandline config unset --topic {topic} unclean.leader.election.enable",
        )
    if in_sync_min == 1:
        return Survival(
            terms,
            survives,
            loses,
            flaw="min.insync.replicas=1: acks=all may mean one replica",
            advice=f"strandline config set --topic {topic} min.insync.replicas={min(2, replicas)}",
        )
    if in_sync_min == replicas:
        return Survival(
            terms,
            survives,
            loses,
            flaw="min.insync.replicas is the number of replicas: one broker down stops acks=all",
            advice=f"strandline config set --topic {topic} min.insync.replicas={replicas - 1}" if replicas > 2 else "",
        )
    return Survival(terms, survives, loses)


def _machines(number: int) -> str:
    return f"{number} machine{'' if number == 1 else 's'}"
