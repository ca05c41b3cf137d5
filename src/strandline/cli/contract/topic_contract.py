"""A topic as a contract describes it, and how that differs from the topic of a cluster (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.cli.common.plain_words import setting_value
from strandline.cli.config.changes import SettingChange, cost
from strandline.cli.contract.kinds import Detail
from strandline.config.topic_config import TOPIC_SETTINGS
from strandline.documents.fields import Fields, kind_of, plain_text
from strandline.documents.units import (
    duration_text,
    parse_duration_ms,
    parse_retention_ms,
    parse_size,
    size_text,
)
from strandline.errors import InvalidConfig
from strandline.lag.objectives import LagObjective, objectives_of, objectives_text

OWNER: Final = "strandline.owner"
OBJECTIVES: Final = "strandline.lag.objectives"
OWN_SETTINGS: Final = (OWNER, OBJECTIVES)
"""Settings that only Strandline has; on other clusters they stay in the file."""
_WORDED: Final = {
    "retention.ms": "retention",
    "retention.bytes": "retention_size",
    "cleanup.policy": "cleanup",
    OWNER: "owner",
    OBJECTIVES: "lag",
}
LEFT_ALONE: Final = ("min.insync.replicas",)
"""A broker sets it itself when it makes a topic with three replicas, so it is not taken back if a file lacks it."""


@dataclass(frozen=True)
class TopicContract:
    """A topic that a contract wants: how it should be, or that it should not be there."""

    name: str
    is_absent: bool = False
    partitions: int | None = None
    replication: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    about: str | None = None

    @property
    def owner(self) -> str:
        return self.settings.get(OWNER, "")

    @property
    def objectives(self) -> list[LagObjective]:
        return objectives_of(self.settings.get(OBJECTIVES, ""))


@dataclass(frozen=True)
class TopicState:
    """A topic of a cluster: its own settings, and those in force."""

    name: str
    partitions: int
    replication: int
    """Of the partition that has the fewest replicas."""
    own: Mapping[str, str] = field(default_factory=dict)
    in_force: Mapping[str, str | None] = field(default_factory=dict)
    fallbacks: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """What holds when the topic's own setting is taken back: by name, the broker's setting and its value."""
    is_uniform: bool = True
    """Whether all partitions have as many replicas."""


@dataclass(frozen=True)
class TopicChange:
    """What a contract changes of a topic. `before` is None for a new topic, `after` for one that goes."""

    before: TopicState | None
    after: TopicContract | None
    set_: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.after.name if self.after is not None else self.before.name if self.before is not None else ""

    @property
    def partitions_added(self) -> int:
        if self.before is None or self.after is None or self.after.partitions is None:
            return 0
        return max(0, self.after.partitions - self.before.partitions)

    @property
    def replication(self) -> int | None:
        """The number of replicas to be, where it changes."""
        if self.before is None or self.after is None:
            return None
        wanted = self.after.replication
        return None if wanted == self.before.replication and self.before.is_uniform else wanted

    @property
    def is_empty(self) -> bool:
        return (
            self.before is not None
            and self.after is not None
            and not (self.set_ or self.unset or self.partitions_added or self.replication or self.refusal)
        )

    @property
    def refusal(self) -> str:
        if self.before is None or self.after is None or self.after.partitions is None:
            return ""
        if self.after.partitions >= self.before.partitions:
            return ""
        return (
            f"partitions cannot be taken away: {self.before.partitions} -> {self.after.partitions}. Make a topic with "
            "another name and move its readers"
        )

    def setting_changes(self) -> list[SettingChange]:
        before = {} if self.before is None else self.before.in_force
        fallbacks = {} if self.before is None else self.before.fallbacks
        changes = [SettingChange(name, before.get(name), value) for name, value in self.set_.items()]
        return changes + [SettingChange(name, before.get(name), None, fallbacks.get(name)) for name in self.unset]

    def after_change(self, name: str) -> str | None:
        """Return the value in force of a setting when the change is made."""
        if name in self.set_:
            return self.set_[name]
        if self.before is None:
            return None
        if name in self.unset:
            return self.before.fallbacks.get(name, ("", None))[1]
        return self.before.in_force.get(name)


def parse_topic(fields: Fields, owner: str | None) -> TopicContract:
    """Return the topic of an entry. DocumentFailed says what is wrong with a field."""
    name = fields.needed_text("name", "orders")
    if name.startswith("__"):
        raise fields.failure("name", f"{name} is internal: the brokers keep it, and no contract changes it")
    state = fields.choice("state", ("present", "absent"))
    partitions, replication = fields.whole("partitions", least=1), fields.whole("replication", least=1)
    settings = _worded_settings(fields, owner)
    settings |= _plain_settings(fields, settings)
    key, about = fields.text("key"), fields.text("about")
    fields.done()
    if state == "absent":
        return TopicContract(name, is_absent=True)
    return TopicContract(name, False, partitions, replication, settings, key, about)


def _worded_settings(fields: Fields, owner: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    retention_ms = fields.parsed("retention", parse_retention_ms)
    if retention_ms is not None:
        found["retention.ms"] = str(retention_ms)
    retention_bytes = fields.parsed("retention_size", parse_size)
    if retention_bytes is not None:
        found["retention.bytes"] = str(retention_bytes)
    cleanup = fields.texts("cleanup")
    if cleanup:
        found["cleanup.policy"] = _checked(fields, "cleanup", "cleanup.policy", ",".join(cleanup))
    named = fields.text("owner") or owner
    if named:
        found[OWNER] = _checked(fields, "owner", OWNER, named)
    objectives = _objectives(fields)
    if objectives:
        found[OBJECTIVES] = objectives_text(objectives)
    return found


def _plain_settings(fields: Fields, worded: Mapping[str, str]) -> dict[str, str]:
    part = fields.part("settings", of="settings")
    if part is None:
        return {}
    found = {}
    for name, value in part.rest():
        if name in worded or name in OWN_SETTINGS:
            raise part.failure(name, f"write {_WORDED[name]} of the topic instead of the setting {name}")
        if value is None or isinstance(value, dict):
            raise part.failure(name, f"{name} is a value, not {kind_of(value)}")
        text = ",".join(plain_text(each) for each in value) if isinstance(value, list) else plain_text(value)
        found[name] = _checked(part, name, name, text)
    return found


def _checked(fields: Fields, at: str, name: str, text: str) -> str:
    """Return the value of a setting that we know; others are for the cluster to judge."""
    if name in TOPIC_SETTINGS:
        try:
            TOPIC_SETTINGS[name][1].parse(text)
        except InvalidConfig as error:
            raise fields.failure(at, str(error)) from None
    return text


def _objectives(fields: Fields) -> list[LagObjective]:
    part = fields.part("lag", of="lag")
    if part is None:
        return []
    found = []
    for group, value in part.rest():
        if isinstance(value, dict | list) or value is None:
            raise part.failure(group, f"the objective of {group} is a duration or a number of records, as 30s")
        if "," in group or group != group.strip() or not group.isprintable():
            raise part.failure(group, f"a lag objective cannot name the group {group!r}: it has a comma or a space")
        try:
            found.append(_objective(group, plain_text(value)))
        except ValueError as error:
            raise part.failure(group, f"the objective of {group}: {error}") from None
    return found


def _objective(group: str, text: str) -> LagObjective:
    records = text.removesuffix("records").removesuffix("record").strip()
    if records != text.strip() and records.replace("_", "").isdigit():
        return LagObjective(group, None, int(records.replace("_", "")))
    try:
        return LagObjective(group, parse_duration_ms(text))
    except ValueError:
        raise ValueError(f"{text!r} is no objective; write for example 30s, 5min or 1000 records") from None


def is_same_value(name: str, one: str | None, other: str | None) -> bool:
    """Return whether two texts mean the same value of a setting."""
    if one == other or one is None or other is None:
        return one == other
    if name not in TOPIC_SETTINGS:
        return False
    setting = TOPIC_SETTINGS[name][1]
    try:
        first, second = setting.parse(one), setting.parse(other)
    except InvalidConfig:
        return False
    if isinstance(first, tuple) and isinstance(second, tuple):
        return sorted(first) == sorted(second)
    return first == second


def compare(wanted: TopicContract, current: TopicState | None, *, keeps_own: bool) -> TopicChange:
    """Return what changes. `keeps_own` says whether the cluster has settings for owners and objectives."""
    settings = {name: value for name, value in wanted.settings.items() if keeps_own or name not in OWN_SETTINGS}
    if current is None:
        return TopicChange(None, wanted, settings)
    if wanted.is_absent:
        return TopicChange(current, None)
    changed = {name: value for name, value in settings.items() if not is_same_value(name, current.own.get(name), value)}
    unset = tuple(sorted(name for name in current.own if name not in settings and name not in LEFT_ALONE))
    return TopicChange(current, wanted, changed, unset)


def change_details(change: TopicChange) -> list[Detail]:
    """Return each part of the change, in words."""
    if change.after is None:
        return []
    if change.before is None:
        default = "the default of the brokers"
        found = [Detail("partitions", None, str(change.after.partitions or default))]
        found.append(Detail("replication", None, str(change.after.replication or default)))
        return found + [Detail(name, None, _value_words(name, value)) for name, value in sorted(change.set_.items())]
    found = []
    if change.partitions_added or change.refusal:
        found.append(Detail("partitions", str(change.before.partitions), str(change.after.partitions)))
    if change.replication is not None:
        found.append(Detail("replication", str(change.before.replication), str(change.replication)))
    for each in change.setting_changes():
        before = _value_words(each.name, each.before) if each.before else "not set"
        if each.after is not None:
            found.append(Detail(each.name, before, _value_words(each.name, each.after)))
        else:
            behind = "" if each.fallback is None else f" ({_value_words(each.name, each.fallback[1]) or 'empty'})"
            found.append(Detail(each.name, before, f"the default{behind}"))
    return found


def _value_words(name: str, value: str | None) -> str:
    meaning = setting_value(name, value)
    return f"{value or ''} ({meaning})" if meaning else value or ""


def losses(change: TopicChange) -> list[str]:
    """Return what the change takes away for good, or makes weaker."""
    if change.before is not None and change.after is None:
        return ["the topic and every record in it"]
    return [loss for each in change.setting_changes() if change.before is not None and (loss := cost(each))]


def export_topic(state: TopicState) -> dict[str, Any]:
    """Return the entry of a topic that plans to nothing."""
    own = dict(state.own)
    entry: dict[str, Any] = {"name": state.name}
    owner = own.pop(OWNER, "")
    if owner:
        entry["owner"] = owner
    entry["partitions"] = state.partitions
    if state.is_uniform:
        entry["replication"] = state.replication
    retention_ms = own.pop("retention.ms", None)
    if retention_ms is not None:
        entry["retention"] = "forever" if int(retention_ms) < 0 else duration_text(int(retention_ms))
    if own.get("retention.bytes", "-1").isdigit():
        entry["retention_size"] = size_text(int(own.pop("retention.bytes")))
    if own.get("cleanup.policy"):
        entry["cleanup"] = own.pop("cleanup.policy")
    objectives = objectives_of(own.pop(OBJECTIVES, ""))
    if own:
        entry["settings"] = {name: _plain(value) for name, value in sorted(own.items())}
    if objectives:
        entry["lag"] = {
            each.group: duration_text(each.limit_ms) if each.limit_ms is not None else f"{each.limit_records} records"
            for each in objectives
        }
    return entry


def _plain(value: str) -> str | int:
    return int(value) if value.lstrip("-").isdigit() and str(int(value)) == value else value
