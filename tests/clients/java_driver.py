"""The process of Kafka's Java clients: compiled once into the cache, then asked line by line."""

from __future__ import annotations

from pathlib import Path

from bench.java_sources import compiled
from bench.kafka_jars import CACHE, kafka_class_path
from tests.clients.program_driver import ProgramDriver

SOURCES = Path(__file__).resolve().parent.parent / "java"


def compiled_classes() -> Path:
    """Return the directory of the driver's classes."""
    return compiled(SOURCES, kafka_class_path(), name="driver")


class JavaDriver(ProgramDriver):
    """One JVM with a producer, consumers and an admin client; requests and answers are lines of JSON."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        class_path = f"{compiled_classes()}:{kafka_class_path()}"
        settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
        # It lives for some seconds, so that the best code is not worth its compilation.
        quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *quick, *settings, "-cp", class_path, "Driver", bootstrap]
        super().__init__(command, logs / "driver.err")
