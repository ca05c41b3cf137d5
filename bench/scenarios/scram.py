"""Logins by SCRAM, each on a new connection: how many a second, and the broker's CPU for each."""

from __future__ import annotations

from contextlib import closing

from bench.brokers import SECOND, Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_least, ratio_at_most
from bench.secured import PASSWORD
from bench.stage import ASYNC_FLUSH, Stage, beside_kafka
from strandline.client.connection import BrokerConnection
from strandline.codec.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from strandline.codec.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from strandline.security.sasl.scram import SCRAM_MECHANISMS, salted_password

NAME = "scram"
SUMMARY = "logins by SCRAM-SHA-256 and -512 on new connections"
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""With the numbers that the protocol gives them."""
CLIENTS = 4
ITERATIONS = 4096
USER = "bench"
SALT = b"sixteen bytes of"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def run(stage: Stage) -> list[Figure]:
    both = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for mechanism in MECHANISMS:
        both[f"listener.name.{SECOND.lower()}.{mechanism.lower()}.sasl.jaas.config"] = JAAS
    figures: list[Figure] = []
    with stage.fresh_pair(settings=ASYNC_FLUSH, both=both, second="SASL_PLAINTEXT") as brokers:
        for broker in brokers:
            create_user(broker)
        for mechanism in MECHANISMS:
            figures += _logins(stage, brokers, mechanism)
    return figures


def _logins(stage: Stage, brokers: list[Broker], mechanism: str) -> list[Figure]:
    count = stage.scaled(1_000, 20)

    def work(broker: Broker) -> dict[str, float]:
        task = {"mechanism": mechanism, "user": USER, "port": broker.second_port, "count": count}
        cpu_s, _, results = run_measured(broker, [("scram_logins", task)] * CLIENTS)
        return {
            "us": cpu_s * 1e6 / sum(result["logins"] for result in results),
            "per_s": sum(result["logins"] / result["seconds"] for result in results),
            "p50_ms": max(result["p50_ms"] for result in results),
        }

    samples = stage.take_turns(brokers, work)
    note = f"{CLIENTS} clients, bare sockets, {ITERATIONS} iterations"
    return [
        beside_kafka(samples, "us", f"broker CPU per login by {mechanism}", "us", ratio_at_most(1.0), note),
        beside_kafka(samples, "per_s", f"logins by {mechanism}", "1/s", ratio_at_least(1.0), note),
        beside_kafka(samples, "p50_ms", f"p50 of a login by {mechanism}", "ms", None, note),
    ]


def create_user(broker: Broker) -> None:
    with closing(BrokerConnection("127.0.0.1", broker.port, client_id="bench", timeout_s=30.0)) as connection:
        for mechanism, number in MECHANISMS.items():
            salted = salted_password(SCRAM_MECHANISMS[mechanism], PASSWORD, SALT, ITERATIONS)
            credential = ScramCredentialUpsertion(
                name=USER, mechanism=number, iterations=ITERATIONS, salt=SALT, salted_password=salted
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential])
            answer = connection.ask(request, AlterUserScramCredentialsResponse)
            assert [each.error_code for each in answer.results] == [0]
