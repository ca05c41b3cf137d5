"""A quota of 10 MB/s that 20 producers of one user share: how near to it they are kept."""

from __future__ import annotations

from contextlib import closing

from bench.brokers import Broker
from bench.client_process import run_measured
from bench.figures import Figure, at_most
from bench.stage import Stage, beside_kafka
from strandline.client.connection import BrokerConnection
from strandline.codec.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from strandline.codec.messages.alter_client_quotas_response import AlterClientQuotasResponse

NAME = "quota"
SUMMARY = "20 producers that share a quota of 10 MB/s"
BYTES_PER_S = 10_000_000
PRODUCERS = 20
SETTLE_S = 15
"""A quota lets an idle client take ten seconds' worth at once; that is over by then."""


def run(stage: Stage) -> list[Figure]:
    with stage.fresh_pair() as brokers:
        for broker in brokers:
            broker.create_topic(NAME, 4)
            limit(broker)

        def work(broker: Broker) -> dict[str, float]:
            task = {
                "topic": NAME,
                "producers": stage.scaled(PRODUCERS, 4),
                "value_bytes": 10_000,
                "settle_s": stage.scaled(SETTLE_S, 1),
                "span_s": stage.scaled(30, 3),
            }
            cpu_s, _, (measured,) = run_measured(broker, [("limited", task)])
            rate = measured["bytes_per_s"]
            return {
                "off_percent": abs(rate / BYTES_PER_S - 1) * 100,
                "mb_per_s": rate / 1e6,
                "cpu_s": cpu_s,
                "fairness": measured["most_per_s"] / max(1.0, measured["least_per_s"]),
            }

        samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 2), warm_rounds=0)
    note = "librdkafka, 10 KB records, over 30 s"
    return [
        beside_kafka(samples, "off_percent", "distance from a quota of 10 MB/s", "%", at_most(5.0), note),
        beside_kafka(samples, "mb_per_s", "bytes a second under a quota of 10 MB/s", "MB/s", None, note),
        beside_kafka(samples, "fairness", "fastest producer to slowest", "times", None, note),
        beside_kafka(samples, "cpu_s", "broker CPU meanwhile", "s", None, note),
    ]


def limit(broker: Broker) -> None:
    """Set the quota of the user that all producers are without authentication."""
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name="ANONYMOUS")],
        ops=[OpData(key="producer_byte_rate", value=float(BYTES_PER_S))],
    )
    with closing(BrokerConnection("127.0.0.1", broker.port, client_id="bench", timeout_s=30.0)) as connection:
        answer = connection.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
        assert [each.error_code for each in answer.entries] == [0]
