"""Bytes in and out of each topic, from the `/metrics` pages of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.config.access import Target, read_entries, value_of
from strandline.cli.doctor.machine import is_this_machine

_LINE: Final = re.compile(
    r'kafka_server_brokertopicmetrics_(bytesin|bytesout)_total\{[^}]*topic="([^"]+)"[^}]*\} ([0-9.eE+]+)'
)
_CLUSTER: Final = re.compile(r'strandline_build\{[^}]*cluster_id="([^"]*)"')
PAGE_BYTES_MAX: Final = 64 << 20
DISCOVERY_S: Final = 2.0
"""How long a page may take that was not asked for."""


class TopicTraffic:
    """What all pages together say; a topic that they do not name has no traffic."""

    def __init__(self) -> None:
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

    def add(self, page: str) -> None:
        for kind, topic, number in _LINE.findall(page):
            (self.bytes_in if kind == "bytesin" else self.bytes_out)[topic] += int(float(number))


def find_traffic(cluster: Cluster) -> TopicTraffic | None:
    """Return the traffic of nodes on this machine by their settings; None if one of their pages is not found."""
    admin = cluster.admin()
    with cluster.errors("cannot list brokers"):
        brokers = admin.list_topics(timeout=cluster.timeout_s).brokers
    if not all(is_this_machine(broker.host) for broker in brokers.values()):
        return None
    urls = []
    try:
        for broker_id in sorted(brokers):
            entries = read_entries(cluster, admin, Target("broker", str(broker_id))) or {}
            host, _, port = (value_of(entries, "http.listener") or "").rpartition(":")
            if not host or not port.strip("0"):
                return None  # Off, or port 0: a free one, which no setting tells.
            urls.append(f"http://{host}:{port}/metrics")
        return read_traffic(replace(cluster, timeout_s=min(cluster.timeout_s, DISCOVERY_S)), urls)
    except CommandFailed:
        return None


def read_traffic(cluster: Cluster, urls: Iterable[str]) -> TopicTraffic:
    """Return the traffic of the nodes whose pages these are; each must be a node of the cluster."""
    traffic = TopicTraffic()
    admin = cluster.admin()
    with cluster.errors("cannot read the metadata of the cluster"):
        cluster_id = admin.list_topics(timeout=cluster.timeout_s).cluster_id
    for url in urls:
        page = _read_page(url, cluster.timeout_s)
        of_cluster = _CLUSTER.search(page)
        # The listener of a node steps back if its port is taken, so the page may be that of another cluster.
        if of_cluster is None or of_cluster[1] != cluster_id:
            other = "no node of Strandline" if of_cluster is None else f"another cluster, {of_cluster[1]}"
            raise UsageFailed(f"{url} is the page of {other}")
        traffic.add(page)
    return traffic


def _read_page(url: str, timeout_s: float) -> str:
    if not url.startswith(("http://", "https://")):
        raise UsageFailed(f"--metrics {url!r} is no address; write for example http://127.0.0.1:9644/metrics")
    try:
        with urlopen(url, timeout=timeout_s) as page:
            text: bytes = page.read(PAGE_BYTES_MAX)
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        hint = "http.listener of a node says where its page is"
        raise CommandFailed(f"cannot read {url}: {reason}", hint=hint) from None
    return text.decode("utf-8", "replace")
