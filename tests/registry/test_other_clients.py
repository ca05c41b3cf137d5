"""Stock registry clients of other languages against our registry: KafkaJS's, and Apicurio's Java serdes.

They are brought from the public registries by name, as the Kafka clients in `tests/clients` are.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest
from bench.maven import MavenFailed, copy_jars, pom
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.clients.test_other_languages import BUILD_TIMEOUT_S, RUN_TIMEOUT_S, fetched, run
from tests.registry.running_registry import RunningRegistry

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).resolve().parent.parent / "java" / "registry"
APICURIO_VERSION = "3.1.2"
CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / f"apicurio-{APICURIO_VERSION}"
_ARTIFACTS = (
    ("io.apicurio", "apicurio-registry-avro-serde-kafka", APICURIO_VERSION),
    ("org.slf4j", "slf4j-nop", "2.0.17"),
)


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


@pytest.mark.timeout(BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_the_registry_client_of_kafkajs(registry: RunningRegistry, registry_bootstrap: str, topic: str) -> None:
    home = fetched("kafkajs-registry", "npm", ["npm", "install", "--no-audit", "--no-fund", "--silent"])
    command = ["node", str(home / "smoke.js"), registry_bootstrap, registry.url, topic]
    assert "SUCCESS" in run(command, home, RUN_TIMEOUT_S)


@pytest.mark.java
@pytest.mark.timeout(2 * BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)
def test_the_serdes_of_apicurio_write_the_ids_of_confluent(
    registry: RunningRegistry, registry_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    class_path = apicurio_class_path()
    classes = compiled(class_path)
    where = [registry_bootstrap, f"{registry.url}/apis/registry/v3", topic]
    said = run(
        ["java", "-Xmx256m", "-cp", f"{classes}:{class_path}", "ApicurioSerdes", *where], tmp_path, RUN_TIMEOUT_S
    )
    _, schema_id, *_ = said[said.index("SUCCESS") :].split()
    assert registry.ask("GET", f"/subjects/{topic}-value/versions/latest")[1]["id"] == int(schema_id)
    # What they wrote is read with Confluent's deserializer.
    consumer = Consumer({"bootstrap.servers": registry_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = next(each for each in iter(lambda: consumer.poll(1), 0) if each is not None and not each.error())
    finally:
        consumer.close()
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        assert AvroDeserializer(client)(message.value(), context) == {"id": 7, "port": "HAM"}


def apicurio_class_path() -> str:
    """Return the class path of Apicurio's serdes, with their jars brought by Maven the first time."""
    for program in ("javac", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"`{program}` is not on PATH")
    complete = CACHE / "complete"
    if not complete.exists():
        project = pom("tests-apicurio", _ARTIFACTS)
        try:
            copy_jars(project, CACHE / "libs")
        except MavenFailed as said:
            pytest.skip(f"Maven could not bring the serdes of Apicurio: {said}"[:2000])
        # Written last, so that an interrupted download is repeated.
        complete.write_text(project)
    return f"{CACHE / 'libs'}/*"


def compiled(class_path: str) -> Path:
    """Return the directory of the program's classes; a source that changed has another one."""
    source = SOURCES / "ApicurioSerdes.java"
    classes = CACHE / f"classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not classes.exists():
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        done = subprocess.run(
            ["javac", "-cp", class_path, "-d", str(fresh), str(source)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        fresh.rename(classes)
    return classes
