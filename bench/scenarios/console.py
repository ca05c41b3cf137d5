"""The web console: start, first page, records, live records, memory, what browsing costs a broker, and a large cluster.

The large one is said by `bench.simulated_cluster`: 5,000 topics with 20 partitions each, and 2,000 groups. What the
machine does to the figures shows beside them: a bare Starlette is started and asked in the same rounds.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench import measure
from bench.brokers import STRANDLINE, Broker
from bench.figures import Figure, Samples, at_least, at_most
from bench.http_servers import HttpServer, served
from bench.stage import Stage

NAME = "console"
SUMMARY = "start, pages with 100,000 partitions and 2,000 groups, live records, memory, cost to a broker"
BARE = "bare Starlette"
BASE = "/c/cluster"
TOPIC = "orders"
TOPICS = 30
RECORDS = 2_000
RATE = 1_000
LIVE_S = 10
BROWSING_S = 15
TABS = 10
REFRESH_S = 5.0
"""How often an open page with a table comes again."""
LARGE_S = 40
POLL_S = 0.02
LARGE_TOPIC = f"{BASE}/topics/team-07.orders.v0007"
LARGE_PAGES = (
    BASE,
    f"{BASE}/topics",
    f"{BASE}/topics?sort=-size_bytes",
    f"{BASE}/topics?sort=-offsets&page=3",
    f"{BASE}/topics?q=team-07",
    LARGE_TOPIC,
    f"{LARGE_TOPIC}/partitions",
    f"{LARGE_TOPIC}/settings",
    f"{LARGE_TOPIC}/keys",
    f"{BASE}/groups",
    f"{BASE}/groups?sort=-lag&page=2",
    f"{BASE}/groups/readers-0011",
    f"{BASE}/transactions",
    f"{BASE}/cluster",
    f"{BASE}/doctor",
    f"{BASE}/security",
    f"{BASE}/audit",
    f"{BASE}/charts",
    f"{BASE}/queues",
    f"{BASE}/schemas",
    f"{BASE}/connectors",
    f"{BASE}/pipelines",
    f"{BASE}/views",
)


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    body = stage.root / "page.json"
    body.write_text('{"id": 1}\n')
    broker = stage.start(STRANDLINE)
    try:
        for number in range(TOPICS):
            broker.create_topic(TOPIC if not number else f"{TOPIC}-{number}", 3)
        _fill(broker)
        small = _started(stage, broker, body)
        with _console(broker.bootstrap) as console:
            running = _running(stage, broker, console)
    finally:
        stage.discard(broker)
    return [*small, *running, *_large(stage, body)]


def _console(bootstrap: str):  # type: ignore[no-untyped-def]  # the context manager of `served`
    return served(NAME, ["strandline", "console", "serve", "-b", bootstrap, "--listen", "127.0.0.1:0"])


def _fill(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for number in range(TOPICS):
        for record in range(RECORDS if not number else 50):
            name = TOPIC if not number else f"{TOPIC}-{number}"
            producer.produce(name, key=b"key-%d" % (record % 100), value=b'{"order": %d, "amount": 7}' % record)
    assert producer.flush(60) == 0


# A small cluster: from the start to the first page


def _started(stage: Stage, broker: Broker, body: Path) -> list[Figure]:
    samples = Samples()
    for number in range(1 + stage.rounds):
        with served(BARE, ["bench.bare_starlette", str(body)]) as bare:
            taken = {BARE: {"ready_s": bare.ready_s, "page_ms": bare.get("/schemas/ids/1")[0]}}
        with _console(broker.bootstrap) as console:
            page_ms, page_bytes = _first_page(console)
            record_ms, page = console.get(f"{BASE}/topics/{TOPIC}")
            assert b"key-" in page
            taken[NAME] = {
                "ready_s": console.ready_s,
                "page_ms": page_ms,
                "page_kb": page_bytes / 1000,
                "record_ms": record_ms,
                "memory_mb": measure.resident_mb(console.process.pid),
            }
        for name, values in taken.items():
            stage.say(f"  round {number + 1} {name:14} " + "  ".join(f"{k} {v:.4g}" for k, v in values.items()))
            if number:  # The first start reads the programs from the disk.
                samples.add(name, values)
    ours, theirs = (lambda metric: samples.of(NAME, metric)), (lambda metric: samples.of(BARE, metric))
    return [
        Figure("start to ready", "s", ours("ready_s"), theirs("ready_s"), BARE, at_most(1.5)),
        Figure("first page, with its files", "ms", ours("page_ms"), theirs("page_ms"), BARE, at_most(300)),
        Figure("bytes of the first page", "kB", ours("page_kb"), target=at_most(150), note="as sent, with its files"),
        Figure("first record of a topic", "ms", ours("record_ms"), target=at_most(300), note="right after the start"),
        Figure("memory after the first pages", "MB", ours("memory_mb"), target=at_most(100)),
    ]


def _first_page(console: HttpServer) -> tuple[float, int]:
    """Return the milliseconds and bytes of the overview and the files it names, as a browser loads them."""
    began = time.perf_counter()
    _, page = console.get(BASE)
    files = re.findall(r'(?:src|href)="(/static/[^"]+\.(?:js|css|svg))"', page.decode())
    assert files
    size = len(page) + sum(len(console.get(file)[1]) for file in dict.fromkeys(files))
    return (time.perf_counter() - began) * 1000, size


# A small cluster: what runs


def _running(stage: Stage, broker: Broker, console: HttpServer) -> list[Figure]:
    gaps, share, latencies = _live(stage, broker, console)
    browsing = _cost(stage, broker, console, _browse)
    keys = _cost(stage, broker, console, _watch_keys)
    memory = measure.resident_mb(console.process.pid)
    stage.say(f"  live: longest gap {max(gaps):.0f} ms; browsing {browsing:.2f} %, keys {keys:.2f} %; {memory:.0f} MB")
    return [
        Figure("longest gap of live records", "ms", [max(gaps)], target=at_most(1_000), note=f"{RATE:,} records/s"),
        Figure("median gap of live records", "ms", [measure.percentile(gaps, 50)], note=f"{RATE:,} records/s"),
        Figure("live records that came", "%", [share], target=at_least(99.9), note="shown, or counted as left out"),
        Figure("page beside live records, p95", "ms", [measure.percentile(latencies, 95)], target=at_most(200)),
        Figure("broker: browsing", "% of a core", [browsing], target=at_most(2.0), note=f"{TABS} open pages"),
        Figure("broker: heaviest keys", "% of a core", [keys], target=at_most(1.0), note="the page is open, 4 MiB"),
        Figure("memory after that", "MB", [memory], target=at_most(100)),
    ]


def _live(stage: Stage, broker: Broker, console: HttpServer) -> tuple[list[float], float, list[float]]:
    """Return the gaps between events while records are written, the share of records that came, and page times."""
    seconds = stage.scaled(LIVE_S, 3)
    stop, sent = threading.Event(), [0]
    writer = threading.Thread(target=_write, args=(broker, stop, sent))
    gaps: list[float] = []
    came, latencies = 0, []
    _, page = console.get(f"{BASE}/topics/{TOPIC}?live=1")
    marks = re.search(r"after=([0-9:,]+)", page.decode())
    assert marks, "the page says where its stream begins"
    with _stream(console, f"{BASE}/live/topics/{TOPIC}?after={marks[1]}") as events:
        writer.start()
        begins = last = time.perf_counter()
        asker = threading.Thread(target=_ask_until, args=(console, f"{BASE}/topics", stop, latencies))
        asker.start()
        for event in events:
            now = time.perf_counter()
            if came:
                gaps.append((now - last) * 1000)
            last = now
            came += event
            if now - begins > seconds and not stop.is_set():
                stop.set()
                writer.join()
            if stop.is_set() and came >= sent[0]:
                break
        asker.join()
    return gaps, 100 * came / sent[0], latencies


def _write(broker: Broker, stop: threading.Event, sent: list[int]) -> None:
    """Write records at a steady rate, each fiftieth of a second what is due."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    began = time.perf_counter()
    while not stop.wait(0.02):
        due = int((time.perf_counter() - began) * RATE)
        while sent[0] < due:
            producer.produce(TOPIC, key=b"key-%d" % (sent[0] % 100), value=b'{"order": %d}' % sent[0])
            sent[0] += 1
        producer.poll(0)
    assert producer.flush(30) == 0


@contextmanager
def _stream(console: HttpServer, path: str) -> Iterator[Iterator[int]]:
    """Open a stream; what it yields is the number of records of each event, with those that it left out."""
    connection = http.client.HTTPConnection(console.bootstrap, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status

    def events() -> Iterator[int]:
        block: list[bytes] = []
        while line := answer.readline():
            if line.strip():
                block.append(line)
                continue
            if any(each.startswith(b"event: records") for each in block):
                text = b"".join(block).decode()
                left_out = re.search(r"([0-9,]+) older records came", text)
                yield text.count('class="place"') + (int(left_out[1].replace(",", "")) if left_out else 0)
            block = []

    try:
        yield events()
    finally:
        connection.close()


def _ask_until(console: HttpServer, path: str, stop: threading.Event, taken: list[float]) -> None:
    while not stop.wait(0.1):
        taken.append(console.get(path)[0])


def _cost(stage: Stage, broker: Broker, console: HttpServer, browse) -> float:  # type: ignore[no-untyped-def]
    """Return the share of a core that a broker needs more while `browse` runs than without."""
    seconds = stage.scaled(BROWSING_S, 3)

    def share() -> float:
        before, began = broker.cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        return (broker.cpu_seconds() - before) / (time.perf_counter() - began)

    # The answers of what ran before are asked for no longer.
    time.sleep(2.0)
    idle = share()
    stop = threading.Event()
    tabs = browse(console, stop)
    try:
        time.sleep(1.0)
        return 100 * max(0.0, share() - idle)
    finally:
        stop.set()
        for each in tabs:
            each.join()


def _browse(console: HttpServer, stop: threading.Event) -> Sequence[threading.Thread]:
    """Open pages that come again, as those of browsers do."""
    pages = (BASE, f"{BASE}/topics", f"{BASE}/groups", f"{BASE}/cluster", f"{BASE}/topics/{TOPIC}/partitions")
    return _tabs(console, [pages[number % len(pages)] for number in range(TABS)], stop)


def _watch_keys(console: HttpServer, stop: threading.Event) -> Sequence[threading.Thread]:
    return _tabs(console, [f"{BASE}/topics/{TOPIC}/keys"], stop)


def _tabs(console: HttpServer, pages: Sequence[str], stop: threading.Event) -> Sequence[threading.Thread]:
    def tab(page: str) -> None:
        while True:
            console.get(page)
            if stop.wait(REFRESH_S):
                return

    tabs = [threading.Thread(target=tab, args=(page,)) for page in pages]
    for each in tabs:
        each.start()
    return tabs


# A large cluster


def _large(stage: Stage, body: Path) -> list[Figure]:
    options = ["--topics", "5000", "--partitions", "20", "--groups", "2000"]
    if stage.quick:
        options = ["--topics", "200", "--partitions", "5", "--groups", "50"]
    with (
        served("simulated", ["bench.simulated_cluster", *options]) as cluster,
        _console(cluster.bootstrap) as console,
        served(BARE, ["bench.bare_starlette", str(body)]) as bare,
    ):
        first = {page: _until_shown(console, page) for page in LARGE_PAGES}
        _wait_for(console, f"{BASE}/groups", b"readers-")
        stop = threading.Event()
        stalls: dict[str, list[float]] = {NAME: [], BARE: []}
        polls = [
            threading.Thread(target=_poll, args=(server, path, stop, stalls[server.name]))
            for server, path in ((console, "/livez"), (bare, "/schemas/ids/1"))
        ]
        for each in polls:
            each.start()
        try:
            taken = _visited(console, stage.scaled(LARGE_S, 3))
        finally:
            stop.set()
            for each in polls:
                each.join()
        memory = measure.resident_mb(console.process.pid)
    every = [ms for each in taken.values() for ms in each]
    by_page = {page: measure.percentile(each, 95) for page, each in taken.items()}
    worst = max(by_page, key=lambda page: by_page[page])
    slowest = max(first, key=lambda page: first[page])
    for page, each in sorted(by_page.items(), key=lambda item: -item[1]):
        stage.say(f"  {page:50} p95 {each:7.1f} ms of {len(taken[page])}, first {first[page]:8.1f} ms")
    size = "100,000 partitions, 2,000 groups"
    stall, bare_stall = (measure.percentile(stalls[name], 99) for name in (NAME, BARE))
    return [
        Figure("pages of a large cluster, p50", "ms", [measure.percentile(every, 50)], note=size),
        Figure("pages of a large cluster, p95", "ms", [measure.percentile(every, 95)], target=at_most(200), note=size),
        Figure("its slowest page, p95", "ms", [by_page[worst]], target=at_most(200), note=worst),
        Figure("the first look at any page", "ms", [first[slowest]], note=f"{slowest}, before anything is known"),
        Figure("loop of the console, p99 of /livez", "ms", [stall], [bare_stall], BARE, at_most(50), size),
        Figure("loop, longest", "ms", [max(stalls[NAME])], [max(stalls[BARE])], BARE, note=size),
        Figure("memory with a large cluster", "MB", [memory], note=size),
    ]


def _until_shown(console: HttpServer, page: str) -> float:
    """Return the milliseconds until a page is there for the first time; a page that is not ready is asked again."""
    began = time.perf_counter()
    while time.perf_counter() - began < 60:
        try:
            console.get(page)
        except RuntimeError:
            time.sleep(0.2)
            continue
        break
    return (time.perf_counter() - began) * 1000


def _wait_for(console: HttpServer, page: str, words: bytes) -> None:
    deadline = time.perf_counter() + 60
    while words not in console.get(page)[1]:
        assert time.perf_counter() < deadline, f"{page} did not fill itself"
        time.sleep(0.5)


def _poll(server: HttpServer, path: str, stop: threading.Event, taken: list[float]) -> None:
    while not stop.wait(POLL_S):
        taken.append(server.get(path)[0])


def _visited(console: HttpServer, seconds: float) -> dict[str, list[float]]:
    """Return how long pages took that were visited in turn."""
    taken: dict[str, list[float]] = {page: [] for page in LARGE_PAGES}
    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        for page in LARGE_PAGES:
            taken[page].append(console.get(page)[0])
            time.sleep(0.02)
    return taken
