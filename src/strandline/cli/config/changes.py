"""What a change of settings costs, in words (pure): records that go, or a promise that gets weaker.

A change that costs something is shown as a plan and confirmed; any other is simply made.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.cli.common.plain_words import duration, size
from strandline.config.topic_config import TOPIC_SETTINGS


@dataclass(frozen=True)
class SettingChange:
    """A setting with its value in force and the one to come.

    `after` is None for a setting that is taken back; then `fallback` is the name and value behind it, where known.
    """

    name: str
    before: str | None
    after: str | None
    fallback: tuple[str, str | None] | None = None

    def __str__(self) -> str:
        before = "unset" if self.before is None else self.before
        if self.after is not None:
            return f"{self.name}: {before} -> {self.after}"
        behind = "" if self.fallback is None else f" ({self.fallback[0]}={self.fallback[1] or ''})"
        return f"{self.name}: {before} -> the default{behind}"


def cost(change: SettingChange) -> str:
    """Return what this change can take away, or nothing."""
    if change.after is None and change.fallback is not None:
        return _cost_of_fallback(change)
    name, factor = _topic_name(change.name)
    if change.after is None:
        return _COST_OF_FALLING_BACK.get(name, "")
    match name:
        case "retention.ms" | "local.retention.ms":
            limit = _lowered(change, factor)
            return "" if limit is None else f"records older than {duration(limit)} will be deleted"
        case "retention.bytes" | "local.retention.bytes":
            limit = _lowered(change, factor)
            return "" if limit is None else f"the oldest records of each partition beyond {size(limit)} will be deleted"
        case "cleanup.policy":
            return _cost_of_policy(_words(change.after) - _words(change.before))
        case "flush.mode":
            weaker = change.after == "async" and change.before != "async"
            return "acknowledged records on a single replica no longer survive a power cut" if weaker else ""
        case "min.insync.replicas":
            limit = _lowered(change, factor)
            return "" if limit is None else f"acks=all may then mean as few as {limit} replicas"
        case "unclean.leader.election.enable":
            weaker = change.after.lower() == "true" and (change.before or "").lower() != "true"
            return "an election may then lose acknowledged records" if weaker else ""
    return ""


_COST_OF_FALLING_BACK = {
    "retention.ms": "records older than the brokers' log.retention will be deleted",
    "retention.bytes": "records beyond the brokers' log.retention.bytes will be deleted",
    "cleanup.policy": "the brokers' log.cleanup.policy may delete or compact records",
    "flush.mode": "the brokers' flush.mode decides what survives a power cut",
    "min.insync.replicas": "the brokers' min.insync.replicas decides what acks=all means",
}


def _cost_of_fallback(change: SettingChange) -> str:
    """Return the cost of a change back to the fallback, which may have another name and unit."""
    assert change.fallback is not None, "the caller looked"
    name, factor = _topic_name(change.name)
    _, other_factor = _topic_name(change.fallback[0])
    return cost(SettingChange(name, _scaled(change.before, factor), _scaled(change.fallback[1], other_factor) or ""))


def _scaled(text: str | None, factor: int) -> str | None:
    number = _number(text, factor)
    return text if number is None else str(number)


def _topic_name(name: str) -> tuple[str, int]:
    """Return the topic setting that `name` is, or gives the default of, and the factor between their units."""
    if name in TOPIC_SETTINGS:
        return name, 1
    for topic_name, (_, setting) in TOPIC_SETTINGS.items():
        for synonym in setting.synonyms:
            if synonym.name == name:
                return topic_name, synonym.factor
    return name, 1


def _lowered(change: SettingChange, factor: int) -> int | None:
    """Return the new limit where it is below the old one; -1 and "not set" are no limit."""
    after, before = _number(change.after, factor), _number(change.before, factor)
    if after is None:
        return None
    return after if before is None or after < before else None


def _number(text: str | None, factor: int) -> int | None:
    if text is None or not text.strip().isdigit():
        return None
    return int(text) * factor


def _words(text: str | None) -> set[str]:
    return {word.strip() for word in (text or "").split(",") if word.strip()}


def _cost_of_policy(added: set[str]) -> str:
    costs = []
    if "delete" in added:
        costs.append("records beyond retention.ms and retention.bytes will be deleted")
    if "compact" in added:
        costs.append("of each key only the newest record will be kept")
    return ", and ".join(costs)
