"""What every stock client must be able to do: one table, and each row is a promise that Apache Kafka keeps, too.

A row also says which clients have no means for it, and why; `docs/clients.md` shows the same, and a test holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.clients import admin_scenarios as admin
from tests.clients import fetch_scenarios as fetch
from tests.clients import group_scenarios as group
from tests.clients import produce_scenarios as produce
from tests.clients.client import CODECS, Client

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java")


@dataclass(frozen=True)
class Row:
    """One promise. `cannot` names the clients that have no way to ask for it, each with the reason."""

    scenario: Callable[[Client, str], None]
    cannot: Mapping[str, str] = field(default_factory=dict)


KCAT_ADMIN = {"kcat": "has no administrative commands"}
KCAT_READER = {"kcat": "reads straight on: it neither seeks nor pauses"}
KCAT_TIMESTAMP = {"kcat": "cannot set a timestamp"}
KCAT_COMMIT = {"kcat": "commits when it leaves, not when told to"}
NO_CALL = {"confluent-kafka": "has no call for it", "aiokafka": "has no call for it"}
NO_INCREMENTAL = {"aiokafka": "knows only the older AlterConfigs"}

SCENARIOS: dict[str, Row] = {
    **{f"codec-{name}": Row(partial(produce.codec, name)) for name in CODECS},
    **{
        f"codec-{name}-everything": Row(partial(produce.codec_with_everything, name), KCAT_TIMESTAMP) for name in CODECS
    },
    **{f"acks-{setting}": Row(partial(produce.acks, setting)) for setting in ("0", "1", "all")},
    "headers": Row(produce.headers),
    "binary-headers": Row(produce.binary_headers, {"kcat": "takes headers as arguments, which hold no zero byte"}),
    "null-headers": Row(produce.null_headers, {"kafka-python": "wants bytes in every header"}),
    "nulls": Row(produce.nulls),
    "idempotent": Row(produce.idempotent),
    "big-batches": Row(produce.big_batches),
    "keys-choose-partitions": Row(produce.keys_choose_partitions),
    "create-time": Row(produce.create_time, KCAT_TIMESTAMP),
    "append-time": Row(produce.append_time, KCAT_TIMESTAMP),
    "append-time-has-no-limits": Row(produce.append_time_has_no_limits, KCAT_TIMESTAMP),
    "stale-timestamp": Row(produce.stale_timestamp, KCAT_TIMESTAMP),
    "future-timestamp": Row(produce.future_timestamp, KCAT_TIMESTAMP),
    "too-large": Row(produce.too_large),
    "tombstones": Row(produce.tombstones),
    "auto-create": Row(produce.auto_create),
    "from-the-middle": Row(fetch.from_the_middle),
    "small-fetches": Row(fetch.small_fetches),
    "fetch-limits": Row(fetch.fetch_limits),
    "minimum-bytes": Row(fetch.minimum_bytes),
    "out-of-range": Row(fetch.out_of_range),
    "long-poll": Row(fetch.long_poll),
    "seek": Row(fetch.seek, KCAT_READER),
    "pause": Row(fetch.pause, KCAT_READER),
    "list-offsets": Row(fetch.list_offsets, KCAT_TIMESTAMP),
    "latest-time": Row(fetch.latest_time, {"aiokafka": "has no call for it", **KCAT_TIMESTAMP}),
    "group-successor": Row(group.group_successor),
    "group-resumes": Row(group.group_resumes, KCAT_COMMIT),
    "group-shares": Row(group.group_shares, KCAT_COMMIT),
    "topics": Row(admin.topics, KCAT_ADMIN),
    "refused-topics": Row(admin.refused_topics, KCAT_ADMIN),
    "describe-topic": Row(admin.describe_topic, KCAT_ADMIN),
    "describe-unknown-topic": Row(
        admin.describe_unknown_topic, KCAT_ADMIN | {"aiokafka": "describes with a request that creates the topic"}
    ),
    "describe-cluster": Row(admin.describe_cluster, KCAT_ADMIN),
    "default-sizes": Row(admin.default_sizes, KCAT_ADMIN | {"aiokafka": "wants numbers"}),
    "explicit-assignment": Row(admin.explicit_assignment, KCAT_ADMIN),
    "validate-only": Row(admin.validate_only, KCAT_ADMIN),
    "create-partitions": Row(admin.create_partitions, KCAT_ADMIN),
    "delete-records": Row(admin.delete_records, KCAT_ADMIN),
    "delete-by-id": Row(admin.delete_by_id, KCAT_ADMIN | NO_CALL),
    "log-sizes": Row(admin.log_sizes, KCAT_ADMIN | NO_CALL),
    "producers": Row(admin.producers, KCAT_ADMIN | NO_CALL),
    "describe-config": Row(admin.describe_config, KCAT_ADMIN),
    "describe-broker-config": Row(admin.describe_broker_config, KCAT_ADMIN),
    "alter-config": Row(admin.alter_config, KCAT_ADMIN | NO_INCREMENTAL),
    "alter-config-list": Row(admin.alter_config_list, KCAT_ADMIN | NO_INCREMENTAL),
    "alter-config-refused": Row(admin.alter_config_refused, KCAT_ADMIN | NO_INCREMENTAL),
    "dynamic-broker-config": Row(admin.dynamic_broker_config, KCAT_ADMIN | NO_INCREMENTAL),
    "replace-config": Row(admin.replace_config, KCAT_ADMIN | {"java": "dropped AlterConfigs in 4.0"}),
}


def rows_of(client: str) -> list[str]:
    """The rows that a client can be asked for."""
    assert client in CLIENTS
    return [name for name, row in SCENARIOS.items() if client not in row.cannot]
