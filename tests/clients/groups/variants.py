"""The clients of the group table, each with a protocol and an assignor, and the command that is one member."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.kafka_jars import CACHE as JAVA_CACHE
from bench.kafka_jars import kafka_class_path
from tests.clients.java_driver import compiled_classes

ROOT = Path(__file__).resolve().parents[3]
GO_SOURCES = Path(__file__).resolve().parent / "franz-go"
GO_CACHE = ROOT / ".cache" / "smoke"
BUILD_TIMEOUT_S = 280


class ClientUnavailable(Exception):
    """What it takes to run this client is not on this machine, or could not be fetched."""


@dataclass(frozen=True)
class Variant:
    """`incremental`: a rebalance takes away only what another member is to have."""

    name: str
    client: str
    protocol: str
    assignor: str
    incremental: bool
    command: Callable[[], list[str]]


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.clients.groups.{module}"]


def java_command(main: str) -> list[str]:
    """The command that runs a class of `tests/java`."""
    class_path = f"{compiled_classes()}:{kafka_class_path()}"
    logs = tempfile.gettempdir()
    settings = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={JAVA_CACHE / 'log4j2.properties'}"]
    # It lives for some seconds, so that the best code is not worth its compilation.
    quick = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *quick, *settings, "-cp", class_path, main]


def go_program(directory: Path, name: str) -> str:
    """The path of the program, built once into the cache; sources that changed have another place."""
    if shutil.which("go") is None:
        raise ClientUnavailable("`go` is not on PATH")
    sources = sorted(path for path in directory.iterdir() if path.is_file())
    fingerprint = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = GO_CACHE / f"{name}-{fingerprint}"
    program = home / name
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, home)
        _run(["go", "mod", "download"], home, "the packages of franz-go could not be fetched")
        _run(["go", "build", "-o", f"{name}.fresh", "."], home, "")
        # Renamed when whole, so that an interrupted build is not mistaken for a finished one.
        (home / f"{name}.fresh").rename(program)
    return str(program)


def _java() -> list[str]:
    return java_command("GroupMember")


def _go() -> list[str]:
    return [go_program(GO_SOURCES, "member")]


def _run(command: list[str], home: Path, unavailable: str) -> None:
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0 and unavailable:
        raise ClientUnavailable(f"{unavailable}: {done.stdout}{done.stderr}"[:2000])
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("librdkafka range", "librdkafka", "classic", "range", False, _python("confluent_member")),
        Variant(
            "librdkafka cooperative", "librdkafka", "classic", "cooperative-sticky", True, _python("confluent_member")
        ),
        Variant("librdkafka consumer", "librdkafka", "consumer", "uniform", True, _python("confluent_member")),
        Variant("java range", "java", "classic", "range", False, _java),
        Variant("java cooperative", "java", "classic", "cooperative-sticky", True, _java),
        Variant("java consumer", "java", "consumer", "uniform", True, _java),
        Variant("kafka-python range", "kafka-python", "classic", "range", False, _python("kafka_python_member")),
        Variant(
            "kafka-python cooperative",
            "kafka-python",
            "classic",
            "cooperative-sticky",
            True,
            _python("kafka_python_member"),
        ),
        Variant("aiokafka range", "aiokafka", "classic", "range", False, _python("aiokafka_member")),
        Variant("franz-go cooperative", "franz-go", "classic", "cooperative-sticky", True, _go),
        Variant("franz-go consumer", "franz-go", "consumer", "uniform", True, _go),
    )
}
