"""versitygw, an S3 server in Go, as a process on this machine, and nodes that keep object and tiered topics in it."""

from __future__ import annotations

import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.connect.s3_server import BUCKET, S3Server

from bench.brokers import Broker, Server
from bench.client_process import run_measured
from bench.measure import MB
from bench.stage import Stage
from strandline.local.free_ports import free_port

ACCESS_LOG = "access.log"
METRICS_TIMEOUT_S = 30.0


class Store:
    """A running server. Its objects are files below `objects`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = S3Server(directory, "--quiet", "--keep-alive", "--access-log", str(directory / ACCESS_LOG))
        self.server.start()

    @property
    def options(self) -> dict[str, str]:
        found = self.server.properties
        return {
            "aws_endpoint": found["store.endpoint"],
            "aws_allow_http": "true",
            "aws_region": found["store.region"],
            "aws_access_key_id": found["store.access.key.id"],
            "aws_secret_access_key": found["store.secret.access.key"],
        }

    def settings(self, prefix: str, **more: str) -> dict[str, str]:
        """Return the settings of a node whose objects lie below a prefix."""
        return {
            "remote.log.storage.system.enable": "true",
            "strandline.remote.store.url": f"s3://{BUCKET}/{prefix}",
            "strandline.remote.store.options": ",".join(f"{name}={value}" for name, value in self.options.items()),
            "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def objects(self, prefix: str) -> list[Path]:
        return sorted(each for each in (self.directory / "objects" / BUCKET / prefix).rglob("*") if each.is_file())

    def key_of(self, path: Path) -> str:
        return str(path.relative_to(self.directory / "objects" / BUCKET))

    def access_lines(self) -> list[str]:
        """Return a line for each request so far."""
        return (self.directory / ACCESS_LOG).read_text(errors="replace").splitlines()

    def puts(self, folder: str) -> int:
        """Return how many objects the server was sent whose keys have this folder, by its own log."""
        return sum("s3_PutObject" in line and f"/{folder}/" in line for line in self.access_lines())

    def alone(self, broker: Server, **task: Any) -> dict[str, float]:
        """Have obstore alone write or read objects, while the broker rests."""
        where = {"url": f"s3://{BUCKET}", "options": {k: v for k, v in self.options.items() if k != "aws_allow_http"}}
        _, _, (result,) = run_measured(broker, [("store", {**where, **task})])
        return {"mb_per_s": result["bytes"] / MB / result["seconds"], "p50_ms": result["p50_ms"]}

    def clear(self, prefix: str) -> None:
        """Delete the objects below a prefix behind the server's back, because the disk is small."""
        shutil.rmtree(self.directory / "objects" / BUCKET / prefix, ignore_errors=True)


@contextmanager
def running_store(stage: Stage) -> Iterator[Store]:
    store = Store(Path(tempfile.mkdtemp(prefix="store-", dir=stage.root)))
    try:
        yield store
    finally:
        store.server.kill()
        shutil.rmtree(store.directory, ignore_errors=True)


def with_metrics(settings: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Return the settings with a port for metrics, and the port."""
    port = free_port()
    return {**settings, "http.listener": f"127.0.0.1:{port}"}, port


def metrics(port: int) -> dict[str, float]:
    """Return the metrics of a node, without those that have labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=METRICS_TIMEOUT_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line[:1] != "#" and "{" not in line]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def started(stage: Stage, name: str, settings: Mapping[str, str]) -> tuple[Broker, int]:
    """Start a node with metrics; return it and the port of its metrics."""
    wanted, port = with_metrics(settings)
    return stage.start(name, settings=wanted), port
