"""The authorizer, rule by rule, and against one that looks at every ACL."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.unit.security.acl.naive_authorizer import NaiveAuthorizer

from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.security.acl import authorizer as module
from strandline.security.acl.access_rule import Acl, record_of
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import SUPPORTED, Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def acl(
    name: str = "orders",
    operation: Operation = READ,
    *,
    denies: bool = False,
    prefix: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    permission = Permission.DENY if denies else Permission.ALLOW
    return Acl(resource_type, pattern, name, principal, host, operation, permission)


def authorizer(
    *acls: Acl, allows_everyone: bool = False, super_users: frozenset[Principal] = frozenset()
) -> Authorizer:
    made = Authorizer(super_users=super_users, allows_everyone=allows_everyone)
    made.load(records(*acls))
    return made


def records(*acls: Acl) -> list[AccessControlEntryRecord]:
    return [record_of(each, UUID(int=number)) for number, each in enumerate(acls)]


def allows(
    deciding: Authorizer,
    operation: Operation = READ,
    name: str = "orders",
    *,
    principal: Principal = ALICE,
    host: str = HOST,
) -> bool:
    allowed = deciding.rights_of(principal, host).allows(operation, TOPIC, name)
    decision = deciding.explain(principal, host, operation, TOPIC, name)
    assert decision.allowed == allowed, decision
    return allowed


def test_an_allow_of_the_client_allows_and_nothing_else_does() -> None:
    deciding = authorizer(acl())
    assert allows(deciding)
    assert not allows(deciding, WRITE)
    assert not allows(deciding, name="orders2")
    assert not allows(deciding, principal=BOB)
    assert not allows(deciding, principal=Principal("Group", "alice"))


def test_a_deny_wins() -> None:
    for denying in (acl(denies=True), acl("ord", denies=True, prefix=True), acl("*", Operation.ALL, denies=True)):
        assert not allows(authorizer(acl(), denying))
        assert not allows(authorizer(denying, acl("*", Operation.ALL)))


def test_a_super_user_is_allowed_whatever_is_denied() -> None:
    deciding = authorizer(acl("*", Operation.ALL, denies=True), super_users=frozenset({ALICE}))
    assert allows(deciding)
    assert deciding.rights_of(ALICE, HOST).is_super
    assert deciding.rights_of(ALICE, HOST).allows_any(WRITE, TOPIC)
    assert deciding.rights_of(ALICE, HOST).operations(TOPIC, "orders") == SUPPORTED[TOPIC]


@pytest.mark.parametrize("name", ["orders", "orders.eu", "ordersX"])
def test_a_prefix_covers_every_name_that_begins_with_it(name: str) -> None:
    assert allows(authorizer(acl(prefix=True)), name=name)


@pytest.mark.parametrize("name", ["order", "Orders", "xorders", "*"])
def test_a_prefix_covers_no_other_name(name: str) -> None:
    assert not allows(authorizer(acl(prefix=True)), name=name)


def test_a_prefix_that_is_a_star_is_no_wildcard() -> None:
    deciding = authorizer(acl("*", prefix=True))
    assert not allows(deciding)
    assert allows(deciding, name="*x")


def test_every_user_and_every_name() -> None:
    deciding = authorizer(acl("*", principal="User:*"))
    assert allows(deciding, principal=BOB)
    assert allows(deciding, principal=Principal("Group", "anything"), name="x")
    assert not allows(authorizer(acl(principal="Group:*")), principal=Principal("Group", "x"))


def test_hosts() -> None:
    deciding = authorizer(acl(host=HOST), acl(host="10.0.0.9", denies=True))
    assert allows(deciding)
    assert not allows(deciding, host="10.0.0.2")
    assert not allows(deciding, host="10.0.0.9")
    # An address range is no address in Kafka 4.3.
    assert not allows(authorizer(acl(host="10.0.0.0/24")))


@pytest.mark.parametrize("peer", ["::1", "0:0:0:0:0:0:0:1"])
def test_ipv6_is_compared_as_an_address(peer: str) -> None:
    assert allows(authorizer(acl(host="0:0:0:0:0:0:0:1")), host=peer)
    assert allows(authorizer(acl(host="::1")), host=peer)
    assert allows(authorizer(acl(host="10.0.0.1")), host="::ffff:10.0.0.1")
    assert not allows(authorizer(acl(host="::no")), host=peer)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_an_allow_implies_describe_and_a_deny_does_not(operation: Operation) -> None:
    assert allows(authorizer(acl(operation=operation)), DESCRIBE)
    assert not allows(authorizer(acl(operation=operation)), Operation.DESCRIBE_CONFIGS)
    assert allows(authorizer(acl(operation=DESCRIBE), acl(operation=operation, denies=True)), DESCRIBE)


def test_alter_configs_implies_describe_configs() -> None:
    assert allows(authorizer(acl(operation=Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not allows(authorizer(acl(operation=Operation.ALTER_CONFIGS)), DESCRIBE)
    for implying in (Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.CLUSTER_ACTION):
        assert not allows(authorizer(acl(operation=implying)), DESCRIBE)


def test_a_resource_without_any_acl_may_be_open() -> None:
    assert not allows(authorizer())
    assert allows(authorizer(allows_everyone=True))
    for other in (acl(principal="User:bob"), acl("ord", prefix=True, principal="User:bob"), acl("*", host="1.1.1.1")):
        deciding = authorizer(other, allows_everyone=True)
        assert not allows(deciding), other
    assert allows(authorizer(acl("customers"), allows_everyone=True))


def test_some_resource_of_a_type() -> None:
    def any_write(*acls: Acl, allows_everyone: bool = False) -> bool:
        return authorizer(*acls, allows_everyone=allows_everyone).rights_of(ALICE, HOST).allows_any(WRITE, TOPIC)

    write = acl(operation=WRITE)
    assert any_write(write)
    assert any_write(acl(operation=Operation.ALL))
    assert not any_write(acl())
    assert not any_write()
    assert any_write(allows_everyone=True)
    assert not any_write(write, acl(operation=WRITE, denies=True))
    assert not any_write(write, acl("ord", WRITE, denies=True, prefix=True))
    assert not any_write(write, acl("*", WRITE, denies=True))
    assert any_write(write, acl("orders.eu", WRITE, denies=True, prefix=True))
    assert any_write(acl("ord", WRITE, prefix=True), acl("ord", WRITE, denies=True))
    assert not any_write(acl("ord", WRITE, prefix=True), acl("o", WRITE, denies=True, prefix=True))
    assert any_write(acl("*", WRITE), acl("o", WRITE, denies=True, prefix=True))


def test_the_field_of_authorized_operations() -> None:
    rights = authorizer(acl(operation=Operation.ALL), acl(operation=WRITE, denies=True)).rights_of(ALICE, HOST)
    assert rights.operations(TOPIC, "orders") == sum(1 << each for each in (3, 5, 6, 7, 8, 10, 11))
    assert rights.operations(ResourceType.GROUP, "orders") == 0


def test_a_change_is_in_effect_at_once() -> None:
    deciding = authorizer(acl())
    before = deciding.rights_of(ALICE, HOST)
    assert before.allows(READ, TOPIC, "orders")
    assert before is deciding.rights_of(ALICE, HOST)
    deciding.load(records(acl("customers")))
    assert before.version != deciding.version
    assert not allows(deciding)
    assert allows(deciding, name="customers")
    deciding.update([record_of(acl(denies=True, name="customers"), UUID(int=77))])
    assert not allows(deciding, name="customers")
    deciding.update([RemoveAccessControlEntryRecord(id=UUID(int=77)), RemoveAccessControlEntryRecord(id=UUID(int=99))])
    assert allows(deciding, name="customers")


def test_the_same_acl_under_two_ids_is_there_until_both_are_removed() -> None:
    deciding = authorizer(acl(denies=True), acl(denies=True), acl("*"))
    deciding.update([RemoveAccessControlEntryRecord(id=UUID(int=0))])
    assert not allows(deciding)
    deciding.update([RemoveAccessControlEntryRecord(id=UUID(int=1))])
    assert allows(deciding)


def test_numbers_of_a_newer_kafka_allow_nothing() -> None:
    strange = acl()._replace(operation=99)
    assert not allows(authorizer(strange))
    assert allows(authorizer(strange, acl(), acl()._replace(resource_type=50)))


@pytest.mark.parametrize(
    ("deciding", "words"),
    [
        (authorizer(super_users=frozenset({ALICE})), "User:alice is a super user (super.users)"),
        (authorizer(acl(denies=True)), "an ACL denies User:alice READ on topic 'orders'"),
        (authorizer(acl("or", prefix=True, host=HOST)), "every topic that begins with 'or' from 10.0.0.1"),
        (authorizer(acl("*", principal="User:*")), "an ACL allows every client READ on every topic"),
        (authorizer(acl(operation=WRITE)), "topic 'orders' has ACLs, but none that allows User:alice READ from"),
        (authorizer(), "no ACL covers topic 'orders'"),
        (authorizer(allows_everyone=True), "and allow.everyone.if.no.acl.found is true"),
    ],
)
def test_a_decision_names_its_rule(deciding: Authorizer, words: str) -> None:
    assert words in deciding.explain(ALICE, HOST, READ, TOPIC, "orders").rule


def test_an_implied_operation_is_named() -> None:
    rule = authorizer(acl()).explain(ALICE, HOST, DESCRIBE, TOPIC, "orders").rule
    assert rule.endswith("READ on topic 'orders', which implies DESCRIBE")


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENT_RIGHTS_MAX", 3)
    monkeypatch.setattr(module, "DECISIONS_PER_CLIENT_MAX", 4)
    monkeypatch.setattr(module, "DECISIONS_MAX", 6)
    deciding = authorizer(acl("t", prefix=True))
    for host in range(20):
        rights = deciding.rights_of(ALICE, f"10.0.0.{host}")
        for name in range(20):
            assert rights.allows(READ, TOPIC, f"t{name}")
            assert not rights.allows(WRITE, TOPIC, f"t{name}")
            assert len(rights._masks[TOPIC]) <= 4
        assert len(deciding._rights) <= 3
        assert sum(len(each._masks[TOPIC]) for each in deciding._rights.values()) <= 6 + 1


NAMES = ("a", "ab", "abc", "b", "ba", "*", "hardcode", "h")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice")
CLIENTS = (ALICE, BOB, Principal("Group", "alice"), Principal("User", "root"))
HOSTS = ("*", "1.1.1.1", "2.2.2.2")
PEERS = ("1.1.1.1", "2.2.2.2", "3.3.3.3")
OPERATIONS = tuple(Operation)[Operation.ALL :]
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)


def random_acl(rng: random.Random) -> Acl:
    return Acl(
        rng.choice(TYPES),
        rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        rng.choice(NAMES),
        rng.choice(PRINCIPALS),
        rng.choice(HOSTS),
        rng.choice(OPERATIONS),
        rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def check_same(deciding: Authorizer, naive: NaiveAuthorizer, rng: random.Random) -> None:
    for _ in range(40):
        client, host, operation = rng.choice(CLIENTS), rng.choice(PEERS), rng.choice(OPERATIONS)
        resource_type, name = rng.choice(TYPES), rng.choice(NAMES)
        rights = deciding.rights_of(client, host)
        expected = naive.allows(client, host, operation, resource_type, name)
        what = f"{client} {host} {operation.name} {resource_type.name} {name} of {naive.acls}"
        assert rights.allows(operation, resource_type, name) == expected, what
        assert deciding.explain(client, host, operation, resource_type, name).allowed == expected, what
        supported = [each for each in OPERATIONS if SUPPORTED[resource_type] >> each & 1]
        field = sum(1 << each for each in supported if naive.allows(client, host, each, resource_type, name))
        assert rights.operations(resource_type, name) == field, what
        expected = naive.allows_any(client, host, operation, resource_type)
        assert rights.allows_any(operation, resource_type) == expected, what


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(seed, marks=pytest.mark.lengthy("random cases beside a naive implementation"))
            for seed in range(1, 20)
        ),
    ],
)
def test_it_decides_as_one_that_looks_at_every_acl(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        allows_everyone = rng.random() < 0.3
        super_users = frozenset({CLIENTS[3]})
        deciding = Authorizer(super_users=super_users, allows_everyone=allows_everyone)
        kept: dict[int, Acl] = {number: random_acl(rng) for number in range(rng.choice((0, 1, 3, 8, 30)))}
        deciding.load(record_of(each, UUID(int=number)) for number, each in kept.items())
        for _ in range(4):
            check_same(deciding, NaiveAuthorizer(list(kept.values()), super_users, allows_everyone), rng)
            added = {rng.randrange(40): random_acl(rng) for _ in range(rng.randrange(4))}
            removed = [number for number in kept if rng.random() < 0.3 and number not in added]
            kept = {number: each for number, each in (kept | added).items() if number not in removed}
            deciding.update(
                [record_of(each, UUID(int=number)) for number, each in added.items()]
                + [RemoveAccessControlEntryRecord(id=UUID(int=number)) for number in removed]
            )
        assert sorted(deciding.acls()) == sorted(kept.values())
