"""Six rules of a well-run estate, each followed, broken or unknown for a workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from strandline.advice.description import WorkloadProfile
from strandline.advice.sizing import sizing
from strandline.documents.units import duration_words


class RuleState(StrEnum):
    """What is known of a rule."""

    FOLLOWED = "followed"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Rule:
    """One rule with its state, why, and what to do."""

    number: int
    rule: str
    state: RuleState
    why: str
    advice: str = ""


def rules(workload: WorkloadProfile) -> list[Rule]:
    """Check the six rules against a workload."""
    return [
        _contract(workload),
        _outbox(workload),
        _lag(workload),
        _derived(workload),
        _worth(workload),
        _room(workload),
    ]


def _state(broken: list[str], unknown: list[str], followed: str) -> tuple[RuleState, str]:
    if broken:
        more = f"; not known: {', '.join(unknown)}" if unknown else ""
        return RuleState.BROKEN, ", ".join(broken) + more
    if unknown:
        return RuleState.UNKNOWN, f"not known: {', '.join(unknown)}"
    return RuleState.FOLLOWED, followed


def _contract(workload: WorkloadProfile) -> Rule:
    safety = workload.safety
    broken = ["no owner is set"] if safety.owner == "" else []
    parts = {
        "owner": safety.owner is not None,
        "schema": safety.schema is not None,
        "compatibility": safety.compatibility is not None,
        "key": workload.key is not None or workload.order == "none",
        "order": workload.order is not None,
        "retention": workload.retention_ms is not None,
    }
    state, why = _state(broken, [name for name, known in parts.items() if not known], "owner, schema, key, retention")
    return Rule(
        1,
        "every topic is a contract: owner, schema with compatibility, key, order and retention are written down",
        state,
        why,
        "" if state is RuleState.FOLLOWED else "write them into a contract file (`strandline contract`)",
    )


def _outbox(workload: WorkloadProfile) -> Rule:
    safety = workload.safety
    broken = [
        *(["producers write without an outbox"] if safety.outbox is False else []),
        *(["consumers are not idempotent"] if safety.idempotent_consumers is False else []),
    ]
    unknown = [
        *(["outbox"] if safety.outbox is None else []),
        *(["idempotent_consumers"] if safety.idempotent_consumers is None else []),
    ]
    state, why = _state(broken, unknown, "an outbox, and consumers that take a record twice without harm")
    advice = "write to the topic from a table of the same transaction; let consumers remember what they have done"
    return Rule(
        2,
        "producers write through an outbox, and consumers are idempotent",
        state,
        why,
        "" if state is RuleState.FOLLOWED else advice,
    )


def _lag(workload: WorkloadProfile) -> Rule:
    objective = workload.safety.lag_objective_ms
    broken = ["no lag objective is set"] if objective == 0 else []
    followed = "" if objective is None else f"at most {duration_words(objective)} behind"
    state, why = _state(broken, ["lag_objective"] if objective is None else [], followed)
    return Rule(
        3,
        "lag is watched as a figure with an objective",
        state,
        why,
        "" if state is RuleState.FOLLOWED else "set strandline.lag.objectives of the topic, and alert on it",
    )


def _derived(workload: WorkloadProfile) -> Rule:
    state_kept = workload.safety.state
    broken = ["the state of consumers is the only copy"] if state_kept == "primary" else []
    state, why = _state(broken, ["state"] if state_kept is None else [], "views can be rebuilt from the log")
    return Rule(
        4,
        "state is derived: views can be rebuilt from the log",
        state,
        why,
        ""
        if state is RuleState.FOLLOWED
        else "keep what a view needs in the log (compacted, or long enough), and try it",
    )


def _worth(workload: WorkloadProfile) -> Rule:
    rule = (
        "replication and acks fit the worth: 3 replicas, min.insync.replicas 2, acks=all and no unclean election for "
        "business data"
    )
    if workload.worth in ("derived", "scratch"):
        return Rule(5, rule, RuleState.FOLLOWED, f"{workload.worth} data may have less")
    safety = workload.safety
    broken = []
    if workload.replicas is not None and workload.replicas < 3:
        broken.append(f"{workload.replicas} replica{'' if workload.replicas == 1 else 's'}")
    if safety.min_insync_replicas is not None and safety.min_insync_replicas < 2:
        broken.append(f"min.insync.replicas={safety.min_insync_replicas}")
    if safety.acks not in (None, "all"):
        broken.append(f"acks={safety.acks}")
    if safety.unclean_election:
        broken.append("unclean elections are allowed")
    unknown = [
        *(["replication"] if workload.replicas is None else []),
        *(["min_insync_replicas"] if safety.min_insync_replicas is None else []),
        *(["acks"] if safety.acks is None else []),
        *(["unclean_election"] if safety.unclean_election is None else []),
        *(["worth"] if workload.worth is None and broken else []),
    ]
    state, why = _state(broken, unknown, "3 replicas, 2 in sync, acks=all")
    return Rule(
        5, rule, state, why, "" if state is RuleState.FOLLOWED else "see the figures above; or say worth: scratch"
    )


def _room(workload: WorkloadProfile) -> Rule:
    rule = "partition counts leave room: a little more than needed, because keyed topics cannot be split under load"
    figure = sizing(workload)[0]
    if workload.partitions is None or figure.value is None:
        lacks = "partitions" if workload.partitions is None else " and ".join(figure.lacks)
        return Rule(6, rule, RuleState.UNKNOWN, f"not known: {lacks}", "describe them, or ask with --topic")
    needed = next((int(each.value.replace(",", "")) for each in figure.inputs if each.name == "needed"), 1)
    if workload.order == "global" or workload.partitions > needed:
        return Rule(6, rule, RuleState.FOLLOWED, f"{workload.partitions:,} partitions, {needed:,} needed")
    return Rule(
        6,
        rule,
        RuleState.BROKEN,
        f"{workload.partitions:,} partitions, {needed:,} needed",
        f"plan {figure.shown} partitions; for a keyed topic make a new one and move readers, because keys move",
    )
