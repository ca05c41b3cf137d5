"""The tables of metrics: documented, well named, and quick to read a piece at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from strandline.broker.main import node_on, stop
from strandline.broker.metrics import docs as metrics_docs
from strandline.broker.metrics.endpoint import Endpoint, parse_listener, reasons_not_ready, take_address
from strandline.broker.metrics.families import SECTIONS, Family, families, page
from strandline.broker.metrics.http_server import listening_socket
from strandline.config.node_config import BrokerConfig
from strandline.errors import DiskFailed, InvalidConfig
from strandline.observability.request_meter import BUCKETS, RequestMeter, cumulative
from strandline.observability.response_errors import count_errors
from strandline.quorum.controller.new_topics import NewTopic

ROOT = Path(__file__).parents[3]
CONFIG = BrokerConfig.load("", {"listeners": "PLAINTEXT://127.0.0.1:0"})
PROMTOOL = shutil.which("promtool")
ALL = [family for section in SECTIONS.values() for family in section]


def test_the_page_of_metrics_is_what_is_served() -> None:
    written = (ROOT / "docs" / "observability.md").read_text()
    assert written == metrics_docs.page(written), "run `make generate`"
    for family in ALL:
        assert f"| `{family.name}`" in written


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_names_keep_prometheus_rules(family: Family) -> None:
    assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith(".")
    if family.public:
        assert not {"partition", "consumergroup", "group"} & set(family.labels), "too many series for that page"


def test_a_name_stands_once() -> None:
    names = [family.name for family in ALL]
    assert len(names) == len(set(names))


def test_what_dashboards_and_alerts_ask_for_is_there() -> None:
    names = {family.name for family in ALL} | {f"{family.name}_bucket" for family in ALL if family.kind == "histogram"}
    asked = "".join(path.read_text() for path in (ROOT / "docs" / "dashboards").iterdir())
    used = set(re.findall(r"\b(?:kafka|strandline|process)_[a-z_]+[a-z]\b", asked))
    assert used
    assert not used - names


@pytest.mark.slow
@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian package prometheus) is not installed")
def test_promtool_takes_the_alerts() -> None:
    rules = ROOT / "docs" / "dashboards" / "alerts.yml"
    checked = subprocess.run([str(PROMTOOL), "check", "rules", rules], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_is_one() -> None:
    dashboard = json.loads((ROOT / "docs" / "dashboards" / "strandline.json").read_text())
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(places) == len(set(places))
    assert all(panel.get("targets") for panel in dashboard["panels"] if panel["type"] != "row")


# Buckets


@pytest.mark.parametrize(("took_ns", "bound_s"), [(0, 2**14), (2**14 - 1, 2**14), (2**14, 2**15), (10**6, 2**20)])
def test_a_time_is_below_its_bound(took_ns: int, bound_s: float) -> None:
    buckets = [0] * BUCKETS
    buckets[took_ns.bit_length()] += 1
    first = next(bound for bound, count in cumulative(buckets) if count)
    assert first == bound_s / 1e9


def test_what_took_for_ever_is_only_in_the_last() -> None:
    buckets = [0] * BUCKETS
    buckets[(2**40).bit_length()] += 1
    assert not any(count for _, count in cumulative(buckets))


def test_errors_are_found_wherever_they_stand() -> None:
    from strandline.codec.messages.offset_commit_response import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    meter = RequestMeter("OffsetCommit")
    partitions = [OffsetCommitResponsePartition(error_code=code) for code in (0, 3, 3, 25)]
    count_errors(meter, OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=partitions)]))
    assert meter.errors == {3: 2, 25: 1}


# With a node


class Running:
    def __init__(self, data: Path) -> None:
        self.node = node_on(asyncio.get_running_loop(), data, CONFIG)
        self.node.start()

    async def create(self, *topics: str, partitions: int = 1) -> None:
        asked = [NewTopic(name=name, partition_count=partitions, replication_factor=1) for name in topics]
        records, _ = self.node.controller.create_topics(asked, validate_only=False)
        done = asyncio.get_running_loop().create_future()
        self.node.metadata.write(records, done.set_result)
        assert await done is None


@pytest.fixture
async def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


async def test_every_family_can_be_read(running: Running) -> None:
    await running.create("orders", partitions=2)
    _ = running.node.telemetry
    for public in (True, False):
        found = {each.name for each in text_string_to_metric_families("".join(page(running.node, public=public)))}
        shown = {family.name.removesuffix("_total") for family in families(public=public)}
        # Only what has happened has a line: requests by API, groups, clients, quotas; certificates with TLS; an audit;
        # an object store.
        missing = {
            name
            for name in shown - found
            if not re.match(
                r"kafka_(network_requestmetrics|consumergroup|coordinator)|strandline_(audit|group|object|quota|remote|tls)",
                name,
            )
        }
        assert missing <= {
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            "strandline_share_waiting_records",
            "strandline_connections_by_software",
            "strandline_log_dirty_ratio",
            "strandline_logins",
            "strandline_sessions_expired",
            "strandline_share_dead_letters_waiting",
            "strandline_share_oldest_unacknowledged_seconds",
        }
    await stop(running.node)


async def test_topics_may_come_and_go_while_the_page_is_written(running: Running) -> None:
    await running.create("a", "b", partitions=3)
    pieces = page(running.node, public=False)
    text = []
    for number, piece in enumerate(pieces):
        text.append(piece)
        if number == 60:
            await running.create("c")
            topic = running.node.image.topic_by_name("a")
            assert topic is not None
            running.node.replicas._delete_topic(topic.id.bytes)
    assert list(text_string_to_metric_families("".join(text)))
    await stop(running.node)


@pytest.mark.slow
async def test_no_piece_of_a_page_of_4000_partitions_takes_long(running: Running) -> None:
    await running.create(*(f"topic-{number}" for number in range(40)), partitions=100)
    for public in (True, False):
        pieces = page(running.node, public=public)
        lines = 0
        worst_s = 0.0
        while True:
            began = time.thread_time()
            piece = next(pieces, None)
            worst_s = max(worst_s, time.thread_time() - began)
            if piece is None:
                break
            lines += 1
        assert worst_s < 0.02, "processor time of one step"
    assert lines > 4_000 * 8
    await stop(running.node)


async def test_readiness_has_its_reasons(running: Running) -> None:
    assert reasons_not_ready(None) == ["starting"]
    assert reasons_not_ready(running.node) == []
    running.node.metadata.log.fail(DiskFailed("no disk"))
    assert reasons_not_ready(running.node) == ["the metadata log failed: no disk"]
    stopping = asyncio.create_task(stop(running.node))
    await asyncio.sleep(0)
    assert reasons_not_ready(running.node) == ["stopping"]
    await stopping


# Where it listens


@pytest.mark.parametrize(
    ("raw", "address"),
    [
        ("127.0.0.1:9644", ("127.0.0.1", 9644)),
        (":0", ("", 0)),
        ("[::1]:80", ("::1", 80)),
        ("off", None),
        (" OFF ", None),
        ("", None),
    ],
)
def test_listeners(raw: str, address: tuple[str, int] | None) -> None:
    assert parse_listener(raw) == address


@pytest.mark.parametrize("raw", ["9644", "localhost", "localhost:70000", "http://localhost:1", "a b:1"])
def test_what_is_no_listener(raw: str) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.listener"):
        parse_listener(raw)


def test_the_default_steps_back_and_a_wish_does_not() -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        by_default = dataclasses.replace(CONFIG, http_listener=where)
        assert take_address(by_default) is None
        asked_for = BrokerConfig.load("", {"http.listener": where})
        with pytest.raises(InvalidConfig, match=where):
            take_address(asked_for)


async def test_the_endpoint_lives_before_there_is_a_node() -> None:
    endpoint = Endpoint(BrokerConfig())
    listening = listening_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    await endpoint.start(listening)
    for path, status in (("/livez", b"200"), ("/readyz", b"503"), ("/metrics", b"503")):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.read()).split(b" ")[1] == status
        writer.close()
    await endpoint.close()
