"""Operations, resources, patterns and permissions, with Kafka's numbers and names."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """What a client does with a resource. The number is also the bit in the fields of authorized operations."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of a resource name. ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""
WILDCARD: Final = "*"
"""The host of an ACL for every host, and the literal name of an ACL for every resource of its type."""
EVERY_USER: Final = "User:*"
"""The principal of an ACL for every client, whatever the type of its principal."""


def bits(*operations: Operation) -> int:
    """Return the field that has the bits of these operations."""
    return sum(1 << operation for operation in operations)


_SPECIFIC: Final = tuple(operation for operation in Operation if operation >= Operation.ALL)
ALL_OPERATIONS: Final = bits(*_SPECIFIC)
DENIES: Final[dict[int, int]] = {int(operation): bits(operation) for operation in _SPECIFIC}
DENIES[Operation.ALL] = ALL_OPERATIONS
"""The operations that an ACL denies, by its own operation."""
GRANTS: Final[dict[int, int]] = DENIES | {
    Operation.READ: bits(Operation.READ, Operation.DESCRIBE),
    Operation.WRITE: bits(Operation.WRITE, Operation.DESCRIBE),
    Operation.DELETE: bits(Operation.DELETE, Operation.DESCRIBE),
    Operation.ALTER: bits(Operation.ALTER, Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: bits(Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
}
"""The operations that an ACL allows. Some imply others, which holds for permissions and not for denials."""

_CHANGES: Final = bits(
    Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.READ
)
SUPPORTED: Final[dict[int, int]] = {
    ResourceType.TOPIC: _CHANGES | bits(Operation.WRITE, Operation.CREATE, Operation.ALTER),
    ResourceType.GROUP: _CHANGES,
    ResourceType.CLUSTER: bits(
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: bits(Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: bits(Operation.DESCRIBE),
    ResourceType.USER: bits(Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that a resource type has, as answers with authorized operations show them."""
