"""Imports what the first requests of each kind would wait for, in small pieces.

A handler may bring a dozen message classes with it, which together keep the loop for tens of milliseconds. So the
messages come first, one module at a time, and then the handlers, which find them loaded. Groups come before all
others: consumers ask about theirs as soon as a node is there, and their code is the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

from strandline.broker.network.routes import Route

_GROUP_APIS: Final = (*range(8, 17), 42, 47, 68, 69, 76, 77, 91, 92)
_GROUP_RECORDS: Final = tuple(
    f"{record}_{part}"
    for record in (
        "offset_commit",
        "group_metadata",
        "consumer_group_metadata",
        "consumer_group_partition_metadata",
        "consumer_group_member_metadata",
        "consumer_group_target_assignment_metadata",
        "consumer_group_target_assignment_member",
        "consumer_group_current_member_assignment",
        "consumer_group_regular_expression",
        "share_group_metadata",
        "share_group_member_metadata",
        "share_group_current_member_assignment",
        "share_group_target_assignment_metadata",
        "share_group_target_assignment_member",
        "share_group_state_partition_metadata",
    )
    for part in ("key", "value")
)
_GROUPS: Final = (
    *("groups.group_config", "groups.events", "groups.pending_request", "groups.classic.classic_group"),
    *("groups.group_records", "groups.consumer.consumer_group", "groups.classic.consumer_protocol"),
    *("groups.history.assignment_diff", "groups.history.flapping_members", "groups.history.group_history"),
    *("groups.history.sentences", "groups.step_context", "groups.classic.rebalance", "offsets.pending_offsets"),
    *("offsets.offsets", "offsets.transactional_offsets", "groups.classic.membership", "groups.classic.join"),
    *("groups.replay", "groups.assignors", "groups.consumer.regex_subscriptions", "groups.consumer.records"),
    *("groups.consumer.replay", "groups.consumer.target_assignment", "groups.consumer.reconciliation"),
    *("groups.migration", "groups.consumer.fencing", "groups.consumer.heartbeat", "groups.admin", "offsets.expiry"),
    *("groups.consumer.classic_join", "groups.consumer.describe", "groups.share.records", "groups.share.fencing"),
    *("groups.share.initialization", "groups.share.offsets_admin", "groups.share.replay", "groups.share.describe"),
    *("groups.share.heartbeat", "groups.share.share_events", "groups.group_shard"),
)
_SHARES: Final = (
    *("acknowledgements", "due_times", "key_order", "share_settings", "held_back", "record_locks", "acquisition"),
    *("dead_ranges", "delivery_history", "share_partition"),
)
_TRANSACTION_RECORDS: Final = (
    *("transaction_log_key", "transaction_log_value", "sink_decision_key", "sink_decision_value"),
)
_TRANSACTIONS: Final = (
    *("transaction_config", "transaction", "events", "transaction_records", "sink_records", "sinks", "step_context"),
    *("ending", "adding", "init_producer_id", "listing", "timeouts", "batches", "transaction_shard"),
)


def import_rest(routes: Iterable[Route]) -> Iterator[str]:
    """Import one module for each step, and say which."""
    cold = [route for route in routes if route.hot is None]
    groups = [route for route in cold if route.api_key in _GROUP_APIS]
    yield from _messages(groups)
    yield from _modules("codec.messages", _GROUP_RECORDS)
    yield from _modules("coordinators", _GROUPS)
    yield from _modules("codec.messages", ("create_topics_request", "create_topics_response"))
    yield from _modules(
        "broker.coordinating",
        (
            "group_log",
            "coordinator_context",
            "coordinator_runtime",
            "group_topics",
            "share_conversations",
            "group_driver",
        ),
    )
    yield from _handlers(groups)
    others = [route for route in cold if route not in groups]
    yield from _messages(others)
    yield from _modules("codec.messages", _TRANSACTION_RECORDS)
    yield from _modules("coordinators.transactions", _TRANSACTIONS)
    yield from _modules("broker.coordinating", ("marker_sender", "transaction_verification", "transaction_driver"))
    yield from _modules("security.sasl", ("scram", "delegation_tokens"))
    yield from _modules("coordinators.shares.delivery", _SHARES)
    yield from _handlers(others)
    yield from _modules("codec.messages", ("fetch_request", "fetch_response"))
    yield from _modules("lag", ("samples", "figures", "verdict"))
    yield from _modules("broker.coordinating", ("lag_counting", "lag_leaders", "lag_sampler"))
    yield from _modules("log", ("maintenance.retention", "segment.segment_times"))
    yield from _modules("broker.maintenance", ("retention",))
    yield from _modules("log.maintenance", ("cleanable", "segment_replacement", "worker_jobs"))
    yield from _modules(
        "broker.maintenance", ("storage_worker", "cleaner_task", "dirty_times", "manual_compaction", "log_cleaner")
    )
    yield from _modules("log.maintenance", ("scrubbing", "segment_rebuild"))
    yield from _modules("broker.maintenance", ("repairs", "corruption", "scrubber"))


def _messages(routes: Iterable[Route]) -> Iterator[str]:
    for kind in ("request", "response"):
        yield from _modules("codec.messages", [f"{route.snake_name}_{kind}" for route in routes])


def _handlers(routes: Iterable[Route]) -> Iterator[str]:
    for route in routes:
        route.load()
        yield route.name


def _modules(package: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        import_module(f"strandline.{package}.{name}")
        yield name
