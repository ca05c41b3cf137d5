"""Rules for Prometheus from the lag objectives of contracts (pure).

They use the metrics that nodes have of groups (`strandline_group_lag_seconds`, `strandline_group_lag_records`). A group
without such a metric has committed nothing, or is gone; that is a rule of its own, because silence would look like
success.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from strandline.cli.contract.topic_contract import TopicContract
from strandline.documents.units import duration_words
from strandline.lag.objectives import LagObjective

HELD_FOR: Final = "1m"
"""Nodes look at lag every ten seconds, so one late look is no alert."""
UNKNOWN_FOR: Final = "15m"


def alert_rules(topics: Iterable[TopicContract]) -> dict[str, Any]:
    """Return a file of rules: two for each objective."""
    rules = [
        rule
        for topic in sorted(topics, key=lambda topic: topic.name)
        for objective in topic.objectives
        for rule in _rules(topic, objective)
    ]
    return {"groups": [{"name": "strandline-lag-objectives", "rules": rules}] if rules else []}


def _rules(topic: TopicContract, objective: LagObjective) -> list[dict[str, Any]]:
    selector = f"{{consumergroup={_quoted(objective.group)},topic={_quoted(topic.name)}}}"
    if objective.limit_ms is not None:
        series, limit = f"strandline_group_lag_seconds{selector}", f"{objective.limit_ms / 1000:g}"
        allowed, value = f"at most {duration_words(objective.limit_ms)}", "{{ $value | humanizeDuration }}"
    else:
        series, limit = f"strandline_group_lag_records{selector}", str(objective.limit_records)
        allowed, value = f"at most {objective.limit_records:,} records", "{{ $value | humanize }} records"
    labels = {"severity": "warning", "consumergroup": _plain(objective.group), "topic": topic.name}
    if topic.owner:
        labels["owner"] = _plain(topic.owner)
    look = f"See `strandline group lag {objective.group}`."
    return [
        {
            "alert": "StrandlineLagObjectiveMissed",
            "expr": f"max({series}) > {limit}",
            "for": HELD_FOR,
            "labels": labels,
            "annotations": {
                "summary": f"{_plain(objective.group)} is {value} behind in {topic.name}; its objective is {allowed}",
                "description": _plain(look),
            },
        },
        {
            "alert": "StrandlineLagUnknown",
            "expr": f"absent({series})",
            "for": UNKNOWN_FOR,
            # A copy, because YAML would write the same mapping as an alias.
            "labels": dict(labels),
            "annotations": {
                "summary": f"The lag of {_plain(objective.group)} in {topic.name} is not known",
                "description": _plain(f"The group has committed nothing, or is gone. {look}"),
            },
        },
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(text: str) -> str:
    """Return a text in which Prometheus finds no template."""
    return text.replace("{{", "{ {")
