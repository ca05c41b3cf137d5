"""`strandline.Log` on the caller's own loop, without a broker; and the least log one could write, behind a socket."""

from __future__ import annotations

from itertools import count as count_up

from bench.client_process import ClientProcess
from bench.figures import Figure, Samples, at_least, ratio_at_least
from bench.scenarios.one_record import CONNECTIONS
from bench.scenarios.produce_1k import produced
from bench.stage import Stage

NAME = "library"
SUMMARY = "strandline.Log against a write-and-fdatasync loop and a 50-line TCP log; reads of 1 M batches"
CALLERS = 64
BATCHES = 1_000_000


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    samples = Samples()
    directories = count_up()

    def measured(part: str, **sizes: int) -> None:
        directory = stage.root / f"{NAME}-{next(directories)}"
        with ClientProcess("library", part=part, directory=str(directory), **sizes) as client:
            client.wait_ready()
            client.tell()
            result = client.result()
        for rates in result["rounds"]:
            stage.say(f"  {part:10} " + "  ".join(f"{key} {number:,.0f}/s" for key, number in rates.items()))
            samples.add(NAME, rates)

    for _ in range(stage.rounds):
        measured("appends", appends=stage.scaled(4_000, 200))
    batches = stage.scaled(BATCHES, 20_000)
    measured("reads", batches=batches, reads=stage.scaled(200_000, 5_000), rounds=min(stage.rounds, 3))
    return [*_append_figures(samples), *_read_figures(samples, batches), *_over_the_wire(stage, samples)]


def _append_figures(samples: Samples) -> list[Figure]:
    plain, tcp = samples.of(NAME, "plain"), samples.of(NAME, "tcp_appends")
    one, many = samples.of(NAME, "one"), samples.of(NAME, "many")
    loop = "write+fdatasync"
    return [
        Figure(f"appends, {CALLERS} callers", "1/s", many, plain, loop, ratio_at_least(5.0), "durable, 100 B values"),
        Figure("appends, 1 caller", "1/s", one, plain, loop, ratio_at_least(0.5), "durable, 100 B values"),
        Figure(f"appends, {CALLERS} callers", "1/s", many, tcp, "TCP log", ratio_at_least(1.0)),
        Figure("appends, 1 caller", "1/s", one, tcp, "TCP log", ratio_at_least(1.0)),
    ]


def _read_figures(samples: Samples, batches: int) -> list[Figure]:
    fetches = samples.of(NAME, "tcp_fetches")
    over = f"{batches:,} single-record batches"
    return [
        Figure("sequential reads", "1/s", samples.of(NAME, "sequential_per_s"), target=at_least(300_000), note=over),
        Figure("random reads", "1/s", samples.of(NAME, "random_per_s"), target=at_least(150_000), note=over),
        Figure("random reads, read_nowait", "1/s", samples.of(NAME, "random_nowait_per_s"), note=over),
        Figure("random reads", "1/s", samples.of(NAME, "random_per_s"), fetches, "TCP log", ratio_at_least(1.0)),
    ]


def _over_the_wire(stage: Stage, samples: Samples) -> list[Figure]:
    """The whole broker against the TCP log: one stock client, every record on the disk before its ack."""
    strandline = next(iter(stage.starters()))
    broker = stage.start(strandline, settings={"flush.mode": "ack"})
    try:
        settings = {"flush.messages": "1"} if stage.kafka_twice else {}
        broker.create_topic(NAME, CONNECTIONS, settings)
        records = stage.scaled(500_000, 10_000)
        for _ in range(min(stage.rounds, 3)):
            through = produced(broker, topic=NAME, count=records, value_bytes=100)
            samples.add(NAME, {"broker": through["mb_per_s"] * 1e6 / 100})
    finally:
        stage.discard(broker)
    tcp = samples.of(NAME, "tcp_appends")
    note = "the broker behind it all: flush.mode=ack, one librdkafka client"
    return [Figure("records through the broker", "1/s", samples.of(NAME, "broker"), tcp, "TCP log", note=note)]
