"""Requests about resources that are there, that are not, and both at once, of every API in every version.

A request does no harm that a later one would notice: it is for validation only, it names what its case made for it, or
it fails for a reason that comes behind the rights. `EXTRA` has requests that need a right of another kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from tests.differential import rights_shares as shares
from tests.differential.cases_acls import creation, selection
from tests.differential.rights_shares import STATES, STRANGER
from tests.differential.rights_stage import (
    ADMIN,
    BILLING,
    FRESH,
    INBOX,
    NOWHERE,
    OPEN,
    ORDERS,
    PARTLY,
    PAYMENTS,
    QUEUED,
    READERS,
    SECRET,
    SHARING,
    SPARE,
    USERS,
    VICTIM,
    WATCHERS,
    RightsTalk,
    commit,
    set_share_offsets,
)
from tests.differential.stage import records
from tests.differential.talk import PATIENCE_S, Talk
from tests.differential.words import Id

from strandline.broker.network.routes import OWN_APIS_FROM, Route, routes
from strandline.errors import ErrorCode

KNOWN, UNKNOWN, BOTH = "known", "unknown", "both"
ROUTES: Final = {key: route for key, route in routes().items() if key < OWN_APIS_FROM}
CODES_ONLY: Final = frozenset((18, 38, 41, 55, 78))
"""Which APIs there are and how long the metadata log is differ between brokers for other reasons; tokens are drawn, and
whether a share fetch names partitions without records is a matter of time."""
METADATA, NAMED_ONLY_BEFORE = 3, 4


class Names(NamedTuple):
    """The resources that a request names."""

    topics: list[str]
    groups: list[str]
    transactions: list[str]


Fields = dict[str, Any]


class Row(NamedTuple):
    """The requests of an API."""

    fields: Callable[[int, Names], Fields]
    topic: str = ORDERS
    group: str = BILLING
    transaction: str = PAYMENTS
    before: Callable[[Talk], None] | None = None
    """Makes again what the request may take away."""


class RightsCase(NamedTuple):
    api_key: int
    version: int
    what: str
    user: str
    fields: Fields
    before: Callable[[Talk], None] | None = None
    script: Callable[[RightsTalk, str], None] | None = None
    """Asks more than one question."""

    @property
    def name(self) -> str:
        return f"{ROUTES[self.api_key].name} {self.version}: {self.what}: {self.user}"


def topic_id(name: str) -> Any:
    return STRANGER if name == NOWHERE else Id(name)


def by_id(topics: list[str], field: str = "name", **more: Any) -> list[Fields]:
    return [{field: "", "topic_id": topic_id(topic), **more} for topic in topics]


def by_name(topics: list[str], field: str = "name", **more: Any) -> list[Fields]:
    return [{field: topic, **more} for topic in topics]


def produce(version: int, names: Names, acks: int = -1, **more: Any) -> Fields:
    content = [{"index": 0, "records": records(["v"], **more)}]
    topics = (by_id if version >= 13 else by_name)(names.topics, partition_data=content)
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": topics}


def fetch(version: int, names: Names, **more: Any) -> Fields:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = (by_id if version >= 13 else by_name)(names.topics, "topic", partitions=partitions)
    sessions = {"session_epoch": -1} if version >= 7 else {}
    return {"max_wait_ms": 0, "max_bytes": 1 << 20, "topics": topics, **sessions, **more}


def list_offsets(version: int, names: Names) -> Fields:
    return {"topics": by_name(names.topics, partitions=[{"partition_index": 0, "timestamp": -1}])}


def metadata(version: int, names: Names) -> Fields:
    return {"topics": by_name(names.topics), **metadata_flags(version)}


def metadata_flags(version: int) -> Fields:
    fields: Fields = {"allow_auto_topic_creation": False} if version >= NAMED_ONLY_BEFORE else {}
    if version >= 8:
        fields["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = True
    return fields


def offset_commit(version: int, names: Names) -> Fields:
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    topics = (by_id if version >= 10 else by_name)(names.topics, partitions=partitions)
    return {"group_id": names.groups[0], "generation_id_or_member_epoch": -1, "topics": topics}


def offset_fetch(version: int, names: Names, *, all_topics: bool = False) -> Fields:
    topics = (by_id if version >= 10 else by_name)(names.topics, partition_indexes=[0])
    if version < 8:
        return {"group_id": names.groups[0], "topics": None if all_topics else topics}
    asked = None if all_topics else topics
    return {"groups": [{"group_id": group, "topics": asked} for group in names.groups]}


def find_coordinator(version: int, keys: list[str], kind: int = 0) -> Fields:
    fields: Fields = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    return fields | ({"key_type": kind} if version >= 1 else {})


def join_group(version: int, names: Names) -> Fields:
    return {
        "group_id": names.groups[0],
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "stranger",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def member(version: int, names: Names) -> Fields:
    return {"group_id": names.groups[0], "generation_id": 1, "member_id": "stranger"}


def sync_group(version: int, names: Names) -> Fields:
    return member(version, names) | ({"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {})


def leave_group(version: int, names: Names) -> Fields:
    member_id = {"member_id": "stranger"}
    return {"group_id": names.groups[0], **({"members": [member_id]} if version >= 3 else member_id)}


def describe_groups(version: int, names: Names) -> Fields:
    return {"groups": names.groups} | ({"include_authorized_operations": True} if version >= 3 else {})


def create_topics(version: int, names: Names) -> Fields:
    topics = by_name(names.topics, num_partitions=1, replication_factor=1)
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": True}


def delete_topics(version: int, names: Names) -> Fields:
    named: Fields = {"topics": by_name(names.topics)} if version >= 6 else {"topic_names": names.topics}
    return named | {"timeout_ms": 10_000}


def epochs(version: int, names: Names) -> Fields:
    return {"topics": by_name(names.topics, "topic", partitions=[{"partition": 0, "leader_epoch": 0}])}


def init_producer_id(version: int, transactional_id: str | None) -> Fields:
    return {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}


def add_partitions(version: int, names: Names) -> Fields:
    topics = by_name(names.topics, partitions=[0])
    if version >= 4:
        return {
            "transactions": [
                {"transactional_id": each, "producer_id": 99_999, "topics": topics} for each in names.transactions
            ]
        }
    return {
        "v3_and_below_transactional_id": names.transactions[0],
        "v3_and_below_producer_id": 99_999,
        "v3_and_below_topics": topics,
    }


def add_offsets(version: int, names: Names) -> Fields:
    return {"transactional_id": names.transactions[0], "producer_id": 99_999, "group_id": names.groups[0]}


def end_txn(version: int, names: Names) -> Fields:
    return {"transactional_id": names.transactions[0], "producer_id": 99_999, "committed": True}


def markers(version: int, names: Names) -> Fields:
    topics = by_name(names.topics, partition_indexes=[99])
    return {"markers": [{"producer_id": 99_999, "transaction_result": True, "topics": topics}]}


def txn_offset_commit(version: int, names: Names) -> Fields:
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    topics = by_name(names.topics, partitions=partitions)
    return add_offsets(version, names) | {"topics": topics}


def resources(kind: int, names: list[str], **more: Any) -> list[Fields]:
    return [{"resource_type": kind, "resource_name": name, **more} for name in names]


POLICY: Final = {"name": "cleanup.policy", "value": "delete"}


def create_token(version: int, names: Names) -> Fields:
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"} if version >= 3 else {}
    # No group can be a renewer, so nothing is made.
    renewer = {"principal_type": "Group", "principal_name": "g"}
    return {"renewers": [renewer], "max_lifetime_ms": 600_000, **owner}


def elect_leaders(version: int, names: Names) -> Fields:
    return {"topic_partitions": by_name(names.topics, "topic", partitions=[0]), "timeout_ms": 10_000}


def features(version: int, names: Names) -> Fields:
    return {"timeout_ms": 10_000, "feature_updates": [{"feature": "no.such", "max_version_level": 1}]}


def heartbeat(version: int, names: Names) -> Fields:
    return {
        "group_id": names.groups[0],
        "member_id": "stranger",
        "member_epoch": 5,
        "subscribed_topic_names": names.topics,
        "rebalance_timeout_ms": 10_000,
        "topic_partitions": [],
    }


def again(talk: Talk) -> None:
    """Make the topic that requests delete, unless the controller still has it."""
    asked = {"name": VICTIM, "num_partitions": 1, "replication_factor": 1}
    made = talk.look(19, 7, topics=[asked], timeout_ms=10_000).topics[0]
    if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return
    assert not made.error_code, ErrorCode(made.error_code).name
    while talk.ids[VICTIM] != made.topic_id:
        # The broker may still show the topic that was deleted.
        talk.wait_for(VICTIM)


ROWS: Final[dict[int, Row]] = {
    0: Row(produce, topic=INBOX),
    1: Row(fetch),
    2: Row(list_offsets),
    3: Row(metadata),
    8: Row(offset_commit),
    9: Row(offset_fetch),
    10: Row(lambda version, names: find_coordinator(version, names.groups)),
    11: Row(join_group),
    12: Row(member),
    13: Row(leave_group),
    14: Row(sync_group),
    15: Row(describe_groups),
    16: Row(lambda version, names: {}),
    17: Row(lambda version, names: {"mechanism": "PLAIN"}),
    18: Row(
        lambda version, names: {"client_software_name": "n", "client_software_version": "1"} if version >= 3 else {}
    ),
    19: Row(create_topics),
    20: Row(delete_topics, topic=VICTIM, before=again),
    21: Row(lambda version, names: {"topics": by_name(names.topics, partitions=[{"offset": 0}]), "timeout_ms": 10_000}),
    22: Row(lambda version, names: init_producer_id(version, names.transactions[0])),
    23: Row(epochs),
    24: Row(add_partitions),
    25: Row(add_offsets),
    26: Row(end_txn),
    27: Row(markers),
    28: Row(txn_offset_commit),
    29: Row(lambda version, names: selection(principal_filter="User:erin")),
    30: Row(lambda version, names: {"creations": [creation(principal="User:nemo")]}),
    31: Row(lambda version, names: {"filters": [selection(principal_filter="User:none")]}),
    32: Row(lambda version, names: {"resources": resources(2, names.topics, configuration_keys=["cleanup.policy"])}),
    33: Row(lambda version, names: {"resources": resources(2, names.topics, configs=[POLICY]), "validate_only": True}),
    35: Row(lambda version, names: {"topics": by_name(names.topics, "topic", partitions=[0])}),
    36: Row(lambda version, names: {"auth_bytes": b"x"}),
    37: Row(
        lambda version, names: {"topics": by_name(names.topics, count=5), "timeout_ms": 10_000, "validate_only": True}
    ),
    38: Row(create_token),
    39: Row(lambda version, names: {"hmac": b"no such token", "renew_period_ms": 60_000}),
    40: Row(lambda version, names: {"hmac": b"no such token", "expiry_time_period_ms": 60_000}),
    41: Row(lambda version, names: {"owners": None}),
    42: Row(
        lambda version, names: {"groups_names": names.groups},
        group=SPARE,
        before=lambda talk: commit(talk, SPARE, ORDERS),
    ),
    43: Row(elect_leaders),
    44: Row(lambda version, names: {"resources": resources(2, names.topics, configs=[POLICY]), "validate_only": True}),
    45: Row(
        lambda version, names: {
            "timeout_ms": 10_000,
            "topics": by_name(names.topics, partitions=[{"partition_index": 0, "replicas": None}]),
        }
    ),
    46: Row(lambda version, names: {"timeout_ms": 10_000, "topics": by_name(names.topics, partition_indexes=[0])}),
    47: Row(
        lambda version, names: {"group_id": names.groups[0], "topics": by_name(names.topics, partitions=[{}])},
        group=SPARE,
        before=lambda talk: commit(talk, SPARE, ORDERS),
    ),
    48: Row(lambda version, names: {"components": [{"entity_type": "user", "match_type": 2, "match": None}]}),
    49: Row(
        lambda version, names: {
            "validate_only": True,
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nemo"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
                }
            ],
        }
    ),
    50: Row(lambda version, names: {"users": [{"name": "nemo"}]}),
    51: Row(lambda version, names: {"deletions": [{"name": "nemo", "mechanism": 1}]}),
    55: Row(lambda version, names: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{}]}]}),
    57: Row(features),
    60: Row(lambda version, names: {"include_cluster_authorized_operations": True}),
    61: Row(lambda version, names: {"topics": by_name(names.topics, partition_indexes=[0])}),
    64: Row(lambda version, names: {"broker_id": 99}),
    65: Row(lambda version, names: {"transactional_ids": names.transactions}, transaction=OPEN),
    66: Row(lambda version, names: {}),
    68: Row(heartbeat),
    69: Row(lambda version, names: {"group_ids": names.groups, "include_authorized_operations": True}, group=WATCHERS),
    71: Row(lambda version, names: {}),
    72: Row(lambda version, names: {"client_instance_id": STRANGER, "subscription_id": 1, "metrics": b"x"}),
    74: Row(lambda version, names: {}),
    75: Row(lambda version, names: {"topics": by_name(names.topics), "response_partition_limit": 100}),
    76: Row(lambda version, names: shares.heartbeat(names.topics, names.groups), group=SHARING),
    77: Row(lambda version, names: {"group_ids": names.groups, "include_authorized_operations": True}, group=SHARING),
    78: Row(lambda version, names: shares.fetch(names.topics, names.groups), group=SHARING),
    79: Row(lambda version, names: shares.acknowledge(names.topics, names.groups), group=SHARING),
    **{
        key: Row(lambda version, names, key=key: shares.state(key, names.topics, names.groups), group=STATES)
        for key in range(83, 88)
    },
    90: Row(lambda version, names: shares.describe_offsets(names.topics, names.groups), group=QUEUED),
    91: Row(lambda version, names: shares.alter_offsets(names.topics, names.groups), group=QUEUED),
    92: Row(
        lambda version, names: shares.delete_offsets(names.topics, names.groups), group=QUEUED, before=set_share_offsets
    ),
}
"""The requests of every API that a broker serves to clients. `test_every_api_has_requests` compares the keys."""


def names_of(row: Row, kind: str) -> Names:
    known, unknown = Names([row.topic], [row.group], [row.transaction]), Names([NOWHERE], [NOWHERE], [NOWHERE])
    if kind == BOTH:
        return Names(known.topics + unknown.topics, known.groups + unknown.groups, [*known.transactions, NOWHERE])
    return known if kind == KNOWN else unknown


def cases() -> Iterator[RightsCase]:
    for key, route in ROUTES.items():
        if key in ROWS:
            yield from cases_of(route, ROWS[key])
    yield from extra()


def cases_of(route: Route, row: Row) -> Iterator[RightsCase]:
    for version in range(route.version_min, route.version_max + 1):
        asked: list[Fields] = []
        for kind in (KNOWN, UNKNOWN, BOTH):
            fields = row.fields(version, names_of(row, kind))
            if fields in asked:
                continue
            asked.append(fields)
            for user in (*USERS, *(PARTLY if version == route.version_max else ())):
                if route.api_key == METADATA and version < NAMED_ONLY_BEFORE and user == ADMIN and kind != KNOWN:
                    # It would create the topic.
                    continue
                yield RightsCase(route.api_key, version, kind, user, fields, row.before)


def every(key: int, what: str, fields: Callable[[int], Fields], first: int = 0) -> Iterator[RightsCase]:
    """Yield the same request of every user in every version."""
    route = ROUTES[key]
    for version in range(max(first, route.version_min), route.version_max + 1):
        for user in (*USERS, *PARTLY):
            yield RightsCase(key, version, what, user, fields(version), ROWS[key].before)


def newest(key: int, what: str, fields: Fields) -> Iterator[RightsCase]:
    version = ROUTES[key].version_max
    for user in (*USERS, *PARTLY):
        yield RightsCase(key, version, what, user, fields, ROWS[key].before)


def extra() -> Iterator[RightsCase]:
    """Yield requests that need a right of another kind than those of the table, or hide by it."""
    inbox, orders = Names([INBOX], [BILLING], [PAYMENTS]), Names([ORDERS], [BILLING], [PAYMENTS])
    transactional = {"producer_id": 99_999, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for name in (PAYMENTS, NOWHERE):
        yield from every(
            0,
            f"in a transaction of {name}",
            lambda version, name=name: produce(version, inbox, **transactional) | {"transactional_id": name},
        )
    yield from every(0, "in a transaction without a name", lambda version: produce(version, inbox, **transactional))
    yield from every(
        0, "with a name for no transaction", lambda version: produce(version, inbox) | {"transactional_id": NOWHERE}
    )
    yield from every(0, "without acknowledgement", lambda version: produce(version, inbox, acks=0))
    follower = partial(as_follower, names=orders)
    yield from every(1, "as a follower", follower)
    for version in range(7, ROUTES[1].version_max + 1):
        for user in (*USERS, *PARTLY):
            yield RightsCase(1, version, "in a session", user, {}, script=partial(fetch_session, version))
    yield from every(3, "all topics", lambda version: {"topics": None if version else [], **metadata_flags(version)})
    for topic in (ORDERS, SECRET, NOWHERE):
        asked = [{"name": None, "topic_id": topic_id(topic)}]
        yield from every(
            3, f"by the id of {topic}", lambda version, asked=asked: {"topics": asked, **metadata_flags(version)}, 12
        )
    for user in ("bob", "dave", "erin"):
        version = ROUTES[3].version_max
        fields = {"topics": [{"name": FRESH}], "allow_auto_topic_creation": True}
        yield RightsCase(3, version, "to be created", user, fields)
    yield from every(9, "all topics", lambda version: offset_fetch(version, orders, all_topics=True), 2)
    for name in (PAYMENTS, NOWHERE):
        yield from every(10, f"of transactions of {name}", partial(find_coordinator, keys=[name], kind=1), 1)
    yield from newest(19, "a topic that one may create", create_topics(7, Names([FRESH], [], [])))
    for topic in (VICTIM, NOWHERE):
        yield from newest(20, f"by the id of {topic}", {"topics": [{"name": None, "topic_id": topic_id(topic)}]})
    yield from every(22, "without a transaction", lambda version: init_producer_id(version, None))
    two = Names([ORDERS, SECRET], [BILLING], [PAYMENTS])
    yield from every(24, "a topic that is refused", lambda version: add_partitions(version, two))
    for kind, name, setting in (
        (4, "1", "log.segment.bytes"),
        (8, "1", "kafka"),
        (16, "m", "metrics"),
        (32, BILLING, ""),
    ):
        keys = [setting] if setting else ["consumer.session.timeout.ms"]
        yield from newest(
            32, f"of resource type {kind}", {"resources": resources(kind, [name], configuration_keys=keys)}
        )
    for kind, name, setting in (
        (4, "1", "log.retention.ms"),
        (16, "m", "interval.ms"),
        (32, BILLING, "consumer.session.timeout.ms"),
    ):
        fields = {
            "resources": resources(kind, [name], configs=[{"name": setting, "value": "60000"}]),
            "validate_only": True,
        }
        yield from newest(44, f"of resource type {kind}", fields)
    for user in (*USERS, *PARTLY):
        yield RightsCase(68, ROUTES[68].version_max, "by a pattern", user, {}, script=read_by_pattern)
    yield from newest(75, "all topics", {"topics": [], "response_partition_limit": 100})
    for version in range(ROUTES[78].version_min, ROUTES[78].version_max + 1):
        for user in (*USERS, *PARTLY):
            yield RightsCase(78, version, "in a session", user, {}, script=partial(shares.share_session, version))
    yield from newest(90, "all topics", shares.describe_offsets(None, [QUEUED]))


def fetch_session(version: int, talk: RightsTalk, user: str) -> None:
    """Open a session with two topics, go on with what the first answer left, and name one of them again."""
    names = Names([ORDERS, SECRET], [], [])
    opened = talk.ask(1, version, client=user, **fetch(version, names, session_epoch=0))
    session = {"session_id": opened.session_id, "session_epoch": 1, "max_wait_ms": 0, "max_bytes": 1 << 20}
    talk.ask(1, version, client=user, **session)
    again = fetch(version, Names([SECRET], [], []), session_id=opened.session_id, session_epoch=2)
    talk.ask(1, version, client=user, **again)


def read_by_pattern(talk: RightsTalk, user: str) -> None:
    """Subscribe to what matches a pattern, and write down what a member gets of it."""
    fields = {"group_id": f"{READERS}-{user}", "member_id": f"{user}-reads"}
    pattern = {"subscribed_topic_regex": f"{ORDERS}|{SECRET}", "rebalance_timeout_ms": 60_000}
    found = talk.look(68, 1, client=user, member_epoch=0, topic_partitions=[], **fields, **pattern)
    deadline = time.monotonic() + PATIENCE_S
    while not found.error_code and not (found.assignment and found.assignment.topic_partitions):
        assert time.monotonic() < deadline, "the member gets nothing to read"
        time.sleep(0.02)
        found = talk.look(68, 1, client=user, member_epoch=found.member_epoch, topic_partitions=None, **fields)
    if found.error_code:
        talk.note(ErrorCode(found.error_code).name)
        return
    topics = {topic_id: topic for topic, topic_id in talk.ids.items()}
    talk.note(sorted(topics[each.topic_id] for each in found.assignment.topic_partitions))
    talk.look(68, 1, client=user, member_epoch=-1, **fields)


def as_follower(version: int, names: Names) -> Fields:
    replica: Fields = {"replica_state": {"replica_id": 5, "replica_epoch": -1}} if version >= 15 else {"replica_id": 5}
    return fetch(version, names) | replica


def ask(talk: RightsTalk, case: RightsCase) -> Any:
    """Return the plain words of the answer."""
    if case.before is not None:
        case.before(talk)
    talk.next_case()
    if case.script is not None:
        case.script(talk, case.user)
        return codes_of(talk.answers) if case.api_key in CODES_ONLY else talk.answers
    talk.ask(case.api_key, case.version, client=case.user, **case.fields)
    (said,) = talk.answers
    if case.api_key not in CODES_ONLY or not isinstance(said, dict):
        return said
    seen = {"tokens": len(said["tokens"])} if "tokens" in said else {}
    return codes_of(said) | seen


def codes_of(said: Any) -> Any:
    match said:
        case dict():
            kept = {name: codes_of(each) for name, each in said.items() if isinstance(each, list | dict)}
            return {name: each for name, each in kept.items() if each} | (
                {"error_code": said["error_code"]} if "error_code" in said else {}
            )
        case list():
            return [each for each in map(codes_of, said) if each]
    return None


CASES: Final = tuple(cases())
