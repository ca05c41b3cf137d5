"""The settings of the audit topic."""

from __future__ import annotations

import dataclasses
from typing import Final

from strandline.config.settings import at_least, between, long, one_of, short, text

AUTO: Final = "auto"
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The table of audit settings. Each attribute is the setting of that name with underscores for dots."""

    strandline_audit_enable: str = text(
        "strandline.audit.enable",
        AUTO,
        one_of(AUTO, "true", "false"),
        "Whether this node writes changes by clients, logins and denials to `__strandline_audit`. `auto`: if it has an "
        "authorizer or a listener with SASL.",
    )
    strandline_audit_topic_replication_factor: int = short(
        "strandline.audit.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__strandline_audit`, which is created with the first line. Where it is not set, no more than "
        "there are nodes.",
    )
    strandline_audit_retention_ms: int = long(
        "strandline.audit.retention.ms",
        90 * DAY_MS,
        between(DAY_MS, 2**63 - 1, also=-1),
        "How long lines are kept in a `__strandline_audit` that this node creates; -1 for ever. Later it is the "
        "`retention.ms` of the topic.",
    )
    strandline_audit_chain_interval_ms: int = long(
        "strandline.audit.chain.interval.ms",
        60_000,
        at_least(100),
        "How often this node anchors the partitions that it leads of topics with `strandline.audit.chain`.",
    )
    strandline_audit_repeat_ms: int = long(
        "strandline.audit.repeat.ms",
        60_000,
        at_least(1),
        "The same event is written once, and then once in this time with the number of its repeats.",
    )
