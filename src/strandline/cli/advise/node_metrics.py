"""Bytes in and out of each topic, from the `/metrics` pages of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from strandline.cli.common.failures import CommandFailed, UsageFailed

_LINE: Final = re.compile(
    r'kafka_server_brokertopicmetrics_(bytesin|bytesout)_total\{[^}]*topic="([^"]+)"[^}]*\} ([0-9.eE+]+)'
)
PAGE_BYTES_MAX: Final = 64 << 20


class TopicTraffic:
    """What all pages together say; a topic that they do not name has no traffic."""

    def __init__(self) -> None:
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

    def add(self, page: str) -> None:
        for kind, topic, number in _LINE.findall(page):
            (self.bytes_in if kind == "bytesin" else self.bytes_out)[topic] += int(float(number))


def read_traffic(urls: Iterable[str], timeout_s: float) -> TopicTraffic:
    """Return the traffic of the nodes whose pages these are."""
    traffic = TopicTraffic()
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise UsageFailed(f"--metrics {url!r} is no address; write for example http://127.0.0.1:9644/metrics")
        try:
            with urlopen(url, timeout=timeout_s) as page:
                traffic.add(page.read(PAGE_BYTES_MAX).decode("utf-8", "replace"))
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise CommandFailed(
                f"cannot read {url}: {reason}", hint="http.listener of a node says where it is"
            ) from None
    return traffic
