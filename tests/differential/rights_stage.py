"""Two brokers with access rules, on the same stage: users, ACLs, topics, groups and transactions.

Every client logs in. `admin` is a super user and sets the stage.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.brokers import start_kafka
from tests.differential.brokers import RECEIVER, compiled
from tests.differential.cases_acls import selection
from tests.differential.stage import KAFKA_SETTINGS, OUR_SETTINGS, records, write
from tests.differential.talk import HANG_S, PATIENCE_S, Talk
from tests.differential.words import Words
from tests.hostile.peer import Closed, Peer

import strandline
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

ADMIN: Final = "admin"
USERS: Final = (ADMIN, "alice", "bob", "carol", "dave")
"""A super user, one that is allowed, one without ACLs, one denied by prefix, one denied by host."""
PARTLY: Final = ("erin", "frank", "grace", "heidi")
"""Clients that may only describe, read, write, or change: they tell which right an API asks for."""

ORDERS, INBOX, VICTIM, SECRET = "orders", "inbox", "victim", "secret"
BILLING, SPARE, WATCHERS = "billing", "spare", "watchers"
SHARING, QUEUED = "sharing", "queued"
"""Share groups: one with a member, at the end of its topics so that no fetch brings records, and one with offsets."""
READERS = "readers"
"""Each user has a group of its own that begins like this."""
PAYMENTS, OPEN = "payments", "transfers"
NOWHERE = "absent"
"""A topic, a group and a transactional id that are not there, and that no ACL names."""
FRESH = "fresh"
"""A topic that is not there. `erin` may describe it and `heidi` create it."""
NAMED: Final = (
    *((ResourceType.TOPIC, name) for name in (ORDERS, INBOX, VICTIM)),
    *((ResourceType.GROUP, name) for name in (BILLING, SPARE, WATCHERS, SHARING, QUEUED)),
    *((ResourceType.GROUP, f"{READERS}-{user}") for user in (*USERS, *PARTLY)),
    *((ResourceType.TRANSACTIONAL_ID, name) for name in (PAYMENTS, OPEN)),
)
"""What ACLs allow. No ACL names the topic SECRET."""
CLUSTER: Final = (ResourceType.CLUSTER, CLUSTER_NAME)

_USERS = " ".join(f'user_{name}="{name}-secret"' for name in (*USERS, *PARTLY))
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN}" password="{ADMIN}-secret" {_USERS};'
)
_SECURED = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "delegation.token.secret.key": "a secret of the stage",
    # Kafka's broker asks its own controller over a plain listener, as User:ANONYMOUS.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    # The member of the stage stays without heartbeats.
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
}
_OUR_SETTINGS = (
    OUR_SETTINGS
    | _SECURED
    # Kafka has no audit topic that lists could show.
    | {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT", "strandline.audit.enable": "false"}
)
_KAFKA_SETTINGS = (
    KAFKA_SETTINGS | _SECURED | {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"}
)


class RightsTalk(Talk):
    """A conversation of clients with names. What a case only looks at, the super user looks at."""

    def peer(self, client: str) -> Peer:
        if client not in self._peers:
            self._peers[client] = logged_in(self.port, ADMIN if client == "look" else client)
        return self._peers[client]

    def next_case(self) -> None:
        """Forget what was written down, and keep the connections."""
        self.answers = []
        self.words = Words(self.ids)


def logged_in(port: int, user: str) -> Peer:
    peer = Peer(port, timeout_s=HANG_S)
    try:
        assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{user}\0{user}-secret".encode()
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer.error_message
    except BaseException:
        peer.close()
        raise
    return peer


Stage = tuple[int, dict[str, uuid.UUID]]


@contextmanager
def strandline_with_rights() -> Iterator[Stage]:
    with strandline.embedded(properties=_OUR_SETTINGS) as log:
        yield log.port, prepare(log.port)


@contextmanager
def kafka_with_rights(root: Path) -> Iterator[Stage]:
    plugins = compiled(RECEIVER, root / "plugins")
    broker = start_kafka(root / "kafka", settings=_KAFKA_SETTINGS, plugins=plugins, wait=False)
    try:
        yield broker.port, prepare(broker.port)
    finally:
        broker.discard()


def prepare(port: int) -> dict[str, uuid.UUID]:
    """Set the stage; return the ids of its topics."""
    wait_for_login(port)
    talk = RightsTalk(port, {})
    try:
        for topic in (ORDERS, INBOX, VICTIM, SECRET):
            # The records of the stage are old.
            talk.create(topic, retention_ms="-1")
        for topic in (ORDERS, SECRET):
            write(talk, topic, records(["v0", "v1"]))
        for kind, key in enumerate((BILLING, PAYMENTS)):
            talk.look(10, 4, coordinator_keys=[key], key_type=kind)
        talk.look(9, 7, group_id=BILLING, topics=None)
        talk.wait_for("__consumer_offsets", 3)
        # As in `stage`: Kafka sets this by itself when its storage is formatted.
        in_sync = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
        changed = talk.look(44, 1, resources=[{"resource_type": 4, "resource_name": "", "configs": [in_sync]}])
        assert not changed.responses[0].error_code
        commit(talk, BILLING, ORDERS, SECRET)
        open_transaction(talk)
        join(talk)
        share(talk)
        create_tokens(talk, ADMIN, "alice", "bob")
        allow(talk)
        return talk.ids
    finally:
        talk.close()


def wait_for_login(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            talk = RightsTalk(port, {})
            found = talk.look(3, 12, topics=[])
            talk.close()
            if found.brokers:
                return
        except (AssertionError, Closed, OSError):
            pass  # Not there yet: this is the state that the loop waits out, up to its deadline.
        assert time.monotonic() < deadline, "the broker does not come up"
        time.sleep(0.1)


def commit(talk: Talk, group: str, *topics: str) -> None:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for topic in topics]
    done = talk.look(8, 8, group_id=group, generation_id_or_member_epoch=-1, topics=asked)
    assert not any(partition.error_code for topic in done.topics for partition in topic.partitions)


def open_transaction(talk: Talk) -> None:
    """Begin a transaction of two topics that stays open."""
    for name in (PAYMENTS, OPEN):
        made = talk.look(22, 4, transactional_id=name, transaction_timeout_ms=900_000)
        assert not made.error_code
    added = talk.look(
        24,
        3,
        v3_and_below_transactional_id=OPEN,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[{"name": topic, "partitions": [0]} for topic in (ORDERS, SECRET)],
    )
    results = [each for topic in added.results_by_topic_v3_and_below for each in topic.results_by_partition]
    assert not any(each.partition_error_code for each in results)


def join(talk: Talk) -> None:
    """Have a member read two topics."""
    fields: dict[str, Any] = {"group_id": WATCHERS, "member_id": "a-member-of-the-stage"}
    subscription = {"subscribed_topic_names": [ORDERS, SECRET], "rebalance_timeout_ms": 600_000}
    deadline = time.monotonic() + PATIENCE_S
    found = talk.look(68, 1, member_epoch=0, topic_partitions=[], **fields, **subscription)
    owned: list[dict[str, Any]] = []
    while len(owned) < 2:
        assert not found.error_code, found.error_message
        assert time.monotonic() < deadline, "the member gets nothing to read"
        if found.assignment is not None:
            owned = [
                {"topic_id": each.topic_id, "partitions": each.partitions} for each in found.assignment.topic_partitions
            ]
        found = talk.look(68, 1, member_epoch=found.member_epoch, topic_partitions=owned, **fields)


def share(talk: Talk) -> None:
    """Have a member of a share group that may read two topics, and another group with offsets."""
    fields: dict[str, Any] = {"group_id": SHARING, "member_id": "c2hhcmUtbWVtYmVyLTAwMQ"}
    found = talk.look(76, 1, member_epoch=0, subscribed_topic_names=[ORDERS, SECRET], **fields)
    deadline = time.monotonic() + PATIENCE_S
    while found.assignment is None or len(found.assignment.topic_partitions) < 2:
        assert not found.error_code, found.error_message
        assert time.monotonic() < deadline, "the member of the share group gets nothing to read"
        time.sleep(0.1)
        found = talk.look(76, 1, member_epoch=found.member_epoch, **fields)
    set_share_offsets(talk)


def set_share_offsets(talk: Talk) -> None:
    offsets = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": topic, "partitions": offsets} for topic in (ORDERS, SECRET)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = talk.look(91, 0, group_id=QUEUED, topics=topics)
        if not done.error_code and not any(each.error_code for topic in done.responses for each in topic.partitions):
            return
        assert time.monotonic() < deadline, f"the share group gets no offsets: {done}"
        time.sleep(0.1)


def create_tokens(talk: Talk, *owners: str) -> None:
    """Create a token for each, and wait until the broker shows them."""
    for owner in owners:
        named = {"owner_principal_type": "User", "owner_principal_name": owner}
        made = talk.look(38, 3, renewers=[], max_lifetime_ms=3_600_000, **named)
        assert not made.error_code
    deadline = time.monotonic() + PATIENCE_S
    while len(talk.look(41, 3, owners=None).tokens) < len(owners):
        assert time.monotonic() < deadline, "the broker does not show the tokens"


def allow(talk: Talk) -> None:
    """Create the ACLs, and wait until the broker has them."""
    creations = [*acls()]
    done = talk.look(30, 3, creations=creations)
    assert not any(each.error_code for each in done.results)
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(each.acls) for each in talk.look(29, 3, **selection()).resources) < len(creations):
        assert time.monotonic() < deadline, "the broker does not have the ACLs"


def acls() -> Iterator[dict[str, Any]]:
    for user in ("alice", "carol", "dave"):
        yield from rules(user, (*NAMED, CLUSTER), [Operation.ALL])
    prefixes = {(kind, name[:3]) for kind, name in NAMED}
    yield from rules("carol", sorted(prefixes), [Operation.ALL], Permission.DENY, pattern=PatternType.PREFIXED)
    yield from rules("dave", (*NAMED, CLUSTER), [Operation.ALL], Permission.DENY, host="127.0.0.1")
    yield from rules("erin", (*NAMED, CLUSTER, (ResourceType.TOPIC, FRESH)), [Operation.DESCRIBE])
    for user, kind, operations in PARTS:
        of_kind = [each for each in (*NAMED, CLUSTER, (ResourceType.TOPIC, FRESH)) if each[0] is kind]
        yield from rules(user, of_kind, operations)


PARTS: Final = (
    ("frank", ResourceType.TOPIC, [Operation.READ]),
    ("frank", ResourceType.GROUP, [Operation.READ]),
    ("grace", ResourceType.TOPIC, [Operation.WRITE]),
    ("grace", ResourceType.TRANSACTIONAL_ID, [Operation.WRITE]),
    ("heidi", ResourceType.TOPIC, [Operation.CREATE, Operation.DELETE, Operation.ALTER]),
    ("heidi", ResourceType.GROUP, [Operation.DELETE]),
    ("heidi", ResourceType.CLUSTER, [Operation.ALTER]),
)


def rules(
    user: str,
    resources: Iterable[tuple[int, str]],
    operations: Iterable[Operation],
    permission: Permission = Permission.ALLOW,
    *,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Iterator[dict[str, Any]]:
    for kind, name in resources:
        for operation in operations:
            yield {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": pattern,
                "principal": f"User:{user}",
                "host": host,
                "operation": operation,
                "permission_type": permission,
            }
