"""The process of Kafka's Java clients: compiled once into the cache, then asked line by line."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from bench.kafka_jars import CACHE, KafkaUnavailable, kafka_class_path
from tests.clients.client import WAIT_S_MAX, ClientFailed

SOURCES = Path(__file__).resolve().parent.parent / "java"


def compiled_classes() -> Path:
    """The directory of the driver's classes; sources that changed have another one."""
    if shutil.which("javac") is None:
        raise KafkaUnavailable("`javac` is not on PATH")
    class_path = kafka_class_path()
    sources = sorted(SOURCES.glob("*.java"))
    fingerprint = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = CACHE / f"driver-{fingerprint}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        done = subprocess.run(
            ["javac", "-cp", class_path, "-d", str(fresh), *map(str, sources)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # Renamed when whole, so that an interrupted compilation is not mistaken for a finished one.
        fresh.rename(classes)
    return classes


class JavaDriver:
    """One JVM with a producer, consumers and an admin client; requests and answers are lines of JSON."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        class_path = f"{compiled_classes()}:{kafka_class_path()}"
        settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
        # It lives for some seconds, so that the best code is not worth its compilation.
        quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._said = (logs / "driver.err").open("w+")
        self._process = subprocess.Popen(
            ["java", *quick, *settings, "-cp", class_path, "Driver", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        patience = threading.Timer(3 * WAIT_S_MAX, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        if not line:
            self._said.seek(0)
            raise AssertionError(f"the Java driver is gone, asked for {do}: {self._said.read()[-4000:]}")
        answer = json.loads(line)
        if "code" in answer:
            raise ClientFailed(answer["code"], answer["message"])
        return answer["value"]

    def close(self) -> None:
        try:
            self._process.communicate(timeout=WAIT_S_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._said.close()
