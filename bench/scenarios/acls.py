"""One-record requests of 32 users, with 10,000 ACLs for 1,000 principals and without an authorizer.

Both kinds of broker take their turns in the same rounds. The users log in by SASL PLAIN in either case. Then brokers
start again on 100,000 ACLs.
"""

from __future__ import annotations

import time
from contextlib import closing

from bench.brokers import KAFKA, SECOND, STRANDLINE, Broker
from bench.figures import Figure, at_most, ratio_at_most
from bench.scenarios.one_record import BARE, CONNECTIONS, one_record
from bench.secured import plain_users
from bench.stage import ASYNC_FLUSH, Stage
from strandline.client.connection import BrokerConnection
from strandline.codec.messages.create_acls_request import AclCreation, CreateAclsRequest
from strandline.codec.messages.create_acls_response import CreateAclsResponse

NAME = "acls"
SUMMARY = "one-record requests with 10,000 ACLs for 1,000 principals, beside no authorizer"
PRINCIPALS = 1_000
LOADED_PRINCIPALS = 10_000
ACLS_EACH = 10
ACLS_PER_REQUEST = 1_000
TOPIC, LITERAL, PREFIXED, WRITE, ALLOW = 2, 3, 4, 4, 3
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
WITHOUT = "without"


def run(stage: Stage) -> list[Figure]:
    users = [f"u{number:04}" for number in range(PRINCIPALS)]
    jaas = {
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{SECOND.lower()}.plain.sasl.jaas.config": plain_users(users[:CONNECTIONS]),
    }
    count = stage.scaled(64_000, 1_600)
    stage.put_shared_pair_away()
    brokers: dict[str, Broker] = {}
    load_s: dict[str, float] = {}
    try:
        for name in stage.starters():
            for kind, settings in ((name, {**AUTHORIZER, **jaas}), (f"{name} {WITHOUT}", jaas)):
                broker = stage.start(name, settings=ASYNC_FLUSH, both=settings, second="SASL_PLAINTEXT")
                brokers[kind] = broker
                broker.name = kind
                broker.create_topic(NAME, CONNECTIONS)
                if kind == name:
                    load_s[kind] = create_acls(broker, users)

        def work(broker: Broker) -> dict[str, float]:
            address = [f"127.0.0.1:{broker.second_port}"]
            return one_record(
                broker, BARE, topic=NAME, count=count, idempotent=False, users=users[:CONNECTIONS], addresses=address
            )

        samples = stage.take_turns(list(brokers.values()), work)
    finally:
        for broker in brokers.values():
            stage.discard(broker)
    note = "bare sockets, 32 users of 1,000"
    figures = []
    for metric, words, unit in (("us", "CPU per one-record request", "us"), ("p50_ms", "p50 of a request", "ms")):
        ours, without, theirs = (samples.of(name, metric) for name in (STRANDLINE, f"{STRANDLINE} {WITHOUT}", KAFKA))
        target = ratio_at_most(1.05) if metric == "us" else None
        figures += [
            Figure(f"{words}, 10,000 ACLs", unit, ours, without, "no authorizer", target, note),
            Figure(f"{words}, 10,000 ACLs, beside Kafka", unit, ours, theirs, note=note),
        ]
    beside = [load_s[KAFKA]] if KAFKA in load_s else []
    figures.append(Figure("10,000 ACLs created", "s", [load_s[STRANDLINE]], beside, target=at_most(3.0)))
    started_s = {name: start_times(stage, name) for name in stage.starters()}
    for at, words in enumerate(("start with 100,000 ACLs", "of that beyond a start without ACLs")):
        beside = [started_s[KAFKA][at]] if KAFKA in started_s else []
        figures.append(Figure(words, "s", [started_s[STRANDLINE][at]], beside, target=at_most(3.0) if at else None))
    return figures


def start_times(stage: Stage, name: str) -> tuple[float, float]:
    """Return how long a broker with 100,000 ACLs takes to start again, and how much longer than without them."""
    users = [f"u{number:05}" for number in range(stage.scaled(LOADED_PRINCIPALS, 100))]
    broker = stage.start(name, settings=ASYNC_FLUSH, both=AUTHORIZER)
    try:
        times_s = []
        for has_rules in (False, True):
            if has_rules:
                create_acls(broker, users)
            broker.stop()
            began = time.perf_counter()
            broker = broker.started_again()
            times_s.append(time.perf_counter() - began)
    finally:
        stage.discard(broker)
    without_s, with_s = times_s
    return with_s, with_s - without_s


def create_acls(broker: Broker, users: list[str]) -> float:
    """Create ACLs that let every user write to the topic, among others; return the seconds it took."""
    rules = [
        AclCreation(
            resource_type=TOPIC,
            resource_name=NAME if number == 0 else f"{user}-{number}-",
            resource_pattern_type=LITERAL if number % 2 == 0 else PREFIXED,
            principal=f"User:{user}",
            host="*",
            operation=WRITE,
            permission_type=ALLOW,
        )
        for user in users
        for number in range(ACLS_EACH)
    ]
    began = time.perf_counter()
    with closing(BrokerConnection("127.0.0.1", broker.port, client_id="bench", timeout_s=120.0)) as connection:
        for at in range(0, len(rules), ACLS_PER_REQUEST):
            request = CreateAclsRequest(creations=rules[at : at + ACLS_PER_REQUEST])
            answer = connection.ask(request, CreateAclsResponse)
            assert {each.error_code for each in answer.results} == {0}
    return time.perf_counter() - began
