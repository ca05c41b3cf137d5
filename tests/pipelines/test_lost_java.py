"""The Java process is killed under a run: the user and everybody who asks are told, and nothing hangs or hides it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import py4j
import pytest
from py4j.clientserver import JavaClient, JavaParameters, PythonParameters
from py4j.protocol import Py4JError, Py4JNetworkError

from strandline.cli.pipeline.failures import failure_of
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.loading import load
from strandline.pipelines.run import queries
from strandline.pipelines.run.running import Runner, RunOptions
from strandline.pipelines.versions.state import FAILED, STOPPED
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.error_translation import in_a_sentence

STEP = """
from strandline import pipeline

pipeline.name("@@")
orders = pipeline.source("orders", topic="@@.orders", schema="amount BIGINT")

@pipeline.stream(topic="@@.large")
def large(orders):
    return orders.where("amount >= 100")
"""


class Java:
    """Answers until it is gone. Then py4j says that an answer is empty, and later that nobody is there."""

    def __init__(self) -> None:
        self.answers_left = 20
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port: int = server.getsockname()[1]
        nobody = JavaParameters(port=self.port)
        self._client = JavaClient(nobody, PythonParameters(), gateway_property=SimpleNamespace(pool=None))

    def __call__(self, answer: Any) -> Any:
        self.answers_left -= 1
        if self.answers_left == -1:
            raise Py4JNetworkError("Answer from Java side is empty")
        if self.answers_left < 0:
            self._client.send_command("x")
        return answer


class Query:
    """A streaming query that is always in the middle of a batch."""

    id, runId = "an-id", "a-run"

    def __init__(self, java: Java) -> None:
        self._java = java

    @property
    def isActive(self) -> bool:
        return bool(self._java(True))

    @property
    def status(self) -> dict[str, Any]:
        return dict(self._java({"message": "Processing new data", "isTriggerActive": True}))

    @property
    def recentProgress(self) -> list[Any]:
        return list(self._java([]))

    def exception(self) -> None:
        self._java(None)

    def stop(self) -> None:
        self._java(None)


class Streams:
    def __init__(self, java: Java) -> None:
        self._java = java

    def addListener(self, listener: object) -> None:
        self._java(None)

    def removeListener(self, listener: object) -> None:
        self._java(None)


@pytest.fixture
def runner(broker: EmbeddedBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Claimed and planned, on a Java that is killed a moment after its query began."""
    broker.create_topic(f"{topic}.orders")
    (tmp_path / "shop.py").write_text(STEP.replace("@@", topic))
    runner = Runner(load(str(tmp_path / "shop.py")), Registry(broker.bootstrap), RunOptions(str(tmp_path)))
    runner.claim()
    java = Java()
    monkeypatch.setattr(queries, "use", lambda spark: None)
    monkeypatch.setattr(queries, "start", lambda *_, **__: Query(java))
    runner._spark = SimpleNamespace(streams=Streams(java))  # type: ignore[assignment]
    runner.compiled = [SimpleNamespace(name="large", default_topic="large", reads=())]  # type: ignore[list-item]
    return runner


def test_it_is_told_to_the_user_and_to_who_asks_later(runner: Runner, topic: str) -> None:
    with pytest.raises(Py4JNetworkError) as caught:
        runner.run(threading.Event())
    failure = failure_of(caught.value, "the cluster")
    assert failure is not None
    assert failure.message.startswith("Spark's Java process is gone (it ended, or the system killed it")
    with Registry(runner.registry.bootstrap) as registry:
        run = registry.refresh().run(topic, 1)
        assert run is not None
        assert (run.state, run.failure) == (FAILED, failure.message)
        assert run.queries["large"].state == STOPPED


def test_a_java_that_nobody_finds_is_told_from_others_that_do_not_answer() -> None:
    java = Java()
    java.answers_left = -1
    with pytest.raises(ConnectionRefusedError) as caught:
        java(None)
    assert in_a_sentence(caught.value).startswith("Spark's Java process is gone")
    with pytest.raises(ConnectionRefusedError) as caught:
        socket.create_connection(("127.0.0.1", java.port))
    assert in_a_sentence(caught.value) == "[Errno 111] Connection refused"
    assert failure_of(caught.value, "the cluster") is None


def test_a_call_that_broke_is_told_from_one_that_java_refused() -> None:
    broke = "An error occurred while calling o272.isActive"
    assert in_a_sentence(Py4JError(broke)).startswith("Spark's Java process is gone")
    refused = in_a_sentence(Py4JError(f"{broke}. Trace:\npy4j.Py4JException: Method isActive([]) does not exist\n"))
    assert "gone" not in refused
    assert "isActive" in refused


def test_py4j_does_not_print_tracebacks_of_what_is_told_anyway() -> None:
    """In a process of its own: whoever runs tests has handlers already."""
    said = subprocess.run(
        [sys.executable, "-c", SAYING, str(Path(py4j.__file__).parent)], capture_output=True, text=True, check=True
    )
    assert said.stderr == "a warning of ours\n"


SAYING = """
import logging, sys
from strandline.spark.lost_java import keep_py4j_quiet
keep_py4j_quiet()
keep_py4j_quiet()
exec(compile("import logging; logging.exception('py4j says')", sys.argv[1] + "/java_gateway.py", "exec"))
logging.getLogger("py4j.clientserver").error("a batch of a table has failed", exc_info=ValueError("a page of it"))
logging.getLogger("strandline.spark.positions").warning("a warning of ours")
"""
