"""Which right every API needs: one row for each that is served, in Apache Kafka's terms.

`tests/unit/handlers/test_rights_table.py` compares the keys with the table of routes, so that no API is without a row.
"""

from __future__ import annotations

from typing import Final

from strandline.handlers.access.checks import Check, each, hide, in_turn, no_right, whole
from strandline.handlers.access.group_checks import (
    add_partitions,
    commit_batch,
    commits,
    describe_transactions,
    described_groups,
    everywhere,
    find_coordinator,
    group_lag,
    init_producer_id,
    markers,
    offset_fetch,
    share_offsets,
    subscription,
)
from strandline.handlers.access.topic_checks import (
    configs,
    create_topics,
    delete_topics,
    describe_cluster,
    flat,
    log_dirs,
)
from strandline.security.acl.kinds import Operation, ResourceType

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

_CLUSTER_ACTION: Final = whole(Operation.CLUSTER_ACTION, CLUSTER)
_CLUSTER_ALTER: Final = whole(Operation.ALTER, CLUSTER)
_CLUSTER_DESCRIBE: Final = whole(Operation.DESCRIBE, CLUSTER)
_CLUSTER_CONFIGS: Final = whole(Operation.DESCRIBE_CONFIGS, CLUSTER)
_GROUP_READ: Final = whole(Operation.READ, GROUP, "group_id")
_TRANSACTION_WRITE: Final = whole(Operation.WRITE, TRANSACTIONAL_ID, "transactional_id")

IN_HANDLER: Final = frozenset((0, 1, 3, *range(38, 42), 75, 78, 79))
"""Produce, Fetch, Metadata, DescribeTopicPartitions, ShareFetch and ShareAcknowledge check each topic themselves, while
they answer for it. The handlers of delegation tokens know the owners."""

RIGHTS: Final[dict[int, Check]] = {
    0: no_right,
    1: no_right,
    2: each("topics", "name", Operation.DESCRIBE, TOPIC, "topics"),
    3: no_right,
    8: in_turn(everywhere(Operation.READ, GROUP, "group_id"), commits),
    9: offset_fetch,
    10: find_coordinator,
    11: _GROUP_READ,
    12: _GROUP_READ,
    13: _GROUP_READ,
    14: _GROUP_READ,
    15: described_groups("groups"),
    16: hide("groups", "group_id", Operation.DESCRIBE, GROUP, or_cluster=True),
    17: no_right,
    18: no_right,
    19: create_topics,
    20: delete_topics,
    21: each("topics", "name", Operation.DELETE, TOPIC, "topics"),
    22: init_producer_id,
    23: each("topics", "topic", Operation.DESCRIBE, TOPIC, "topics", or_cluster=Operation.CLUSTER_ACTION),
    24: add_partitions,
    25: in_turn(_TRANSACTION_WRITE, _GROUP_READ),
    26: _TRANSACTION_WRITE,
    27: markers,
    28: in_turn(
        everywhere(Operation.WRITE, TRANSACTIONAL_ID, "transactional_id"),
        everywhere(Operation.READ, GROUP, "group_id"),
        commits,
    ),
    29: _CLUSTER_DESCRIBE,
    30: _CLUSTER_ALTER,
    31: _CLUSTER_ALTER,
    32: configs(Operation.DESCRIBE_CONFIGS, "results"),
    33: configs(Operation.ALTER_CONFIGS, "responses"),
    35: log_dirs,
    36: no_right,
    37: each("topics", "name", Operation.ALTER, TOPIC, "results"),
    38: no_right,
    39: no_right,
    40: no_right,
    41: no_right,
    42: each("groups_names", "group_id", Operation.DELETE, GROUP, "results"),
    43: _CLUSTER_ALTER,
    44: configs(Operation.ALTER_CONFIGS, "responses"),
    45: _CLUSTER_ALTER,
    46: _CLUSTER_DESCRIBE,
    47: in_turn(
        whole(Operation.DELETE, GROUP, "group_id"),
        each("topics", "name", Operation.READ, TOPIC, "topics"),
    ),
    48: _CLUSTER_CONFIGS,
    49: whole(Operation.ALTER_CONFIGS, CLUSTER),
    50: _CLUSTER_DESCRIBE,
    51: _CLUSTER_ALTER,
    52: _CLUSTER_ACTION,
    53: _CLUSTER_ACTION,
    54: _CLUSTER_ACTION,
    55: _CLUSTER_DESCRIBE,
    56: _CLUSTER_ACTION,
    57: _CLUSTER_ALTER,
    58: _CLUSTER_ACTION,
    59: _CLUSTER_ACTION,
    60: describe_cluster,
    61: each("topics", "name", Operation.READ, TOPIC, "topics"),
    62: _CLUSTER_ACTION,
    63: _CLUSTER_ACTION,
    64: _CLUSTER_ALTER,
    65: describe_transactions,
    66: hide("transaction_states", "transactional_id", Operation.DESCRIBE, TRANSACTIONAL_ID),
    67: _CLUSTER_ACTION,
    68: in_turn(_GROUP_READ, subscription),
    69: described_groups("group_ids"),
    70: _CLUSTER_ACTION,
    71: no_right,
    72: no_right,
    73: _CLUSTER_ACTION,
    74: _CLUSTER_CONFIGS,
    75: no_right,
    76: in_turn(_GROUP_READ, subscription),
    77: described_groups("group_ids"),
    78: no_right,
    79: no_right,
    83: _CLUSTER_ACTION,
    84: _CLUSTER_ACTION,
    85: _CLUSTER_ACTION,
    86: _CLUSTER_ACTION,
    87: _CLUSTER_ACTION,
    90: share_offsets,
    91: in_turn(_GROUP_READ, each("topics", "topic_name", Operation.READ, TOPIC, "responses")),
    92: in_turn(
        whole(Operation.DELETE, GROUP, "group_id"),
        each("topics", "topic_name", Operation.READ, TOPIC, "responses"),
    ),
    20_000: commit_batch,
    20_001: whole(Operation.DESCRIBE, GROUP, "group_id"),
    20_002: group_lag,
    20_003: hide("transactions", "transactional_id", Operation.DESCRIBE, TRANSACTIONAL_ID),
    20_004: hide("sinks", "sink_id", Operation.DESCRIBE, TRANSACTIONAL_ID),
    20_005: whole(Operation.WRITE, TRANSACTIONAL_ID, "sink_id"),
    20_006: each("topics", "name", Operation.DESCRIBE, TOPIC, "topics"),
    20_007: _CLUSTER_DESCRIBE,
    20_008: flat(Operation.ALTER),
    20_009: flat(Operation.ALTER),
    20_010: _CLUSTER_ACTION,
    20_011: _CLUSTER_ACTION,
    20_012: _CLUSTER_ACTION,
    20_013: in_turn(
        whole(Operation.DESCRIBE, GROUP, "group_id"),
        each("topics", "name", Operation.DESCRIBE, TOPIC, "topics"),
    ),
    20_014: _CLUSTER_DESCRIBE,
}

ON_CONTROLLER: Final[dict[int, Check]] = {1: _CLUSTER_ACTION}
"""Rows that differ on the controller listener: there a Fetch reads the metadata log."""
