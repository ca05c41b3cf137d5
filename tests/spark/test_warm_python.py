"""What Spark starts in the place of Python is a Python: arguments, streams, environment, directory, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.warm_python.starting import WarmPython

PROBE = """
import json, os, sys
if __name__ == "__main__":
    print(json.dumps([sys.argv[1:], os.environ.get("SEEN"), os.getcwd(), sys.stdin.read(), hash("text")]))
    print("to stderr", file=sys.stderr)
    sys.exit(int(sys.argv[1]))
"""
SLEEPER = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""
WORKER = """
import sys

KNOWN = set(sys.modules)
bootstrap, topic = sys.argv[1:]

from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_strandline import DefaultSource

schema = StructType([StructField("value", BinaryType())])
source = DefaultSource({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
source.schema()
stream = source.streamReader(schema)
stream.prepareForTriggerAvailableNow()
begin = stream.initialOffset()
end = stream.latestOffset(begin, stream.getDefaultReadLimit())
rows = [row for part in stream.partitions(begin, end) for batch in stream.read(part) for row in batch["value"]]
batch = source.reader(schema)
rows += [row for part in batch.partitions() for each in batch.read(part) for row in each["value"]]
assert [row.as_py() for row in rows] == [b"one"] * 2, rows

from strandline.spark.sink import driver
from strandline.spark.sink.options import parse_options
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task
import pyarrow as pa

options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
DefaultSource(options).streamWriter(schema, False)
DefaultSource(options).writer(schema, False)
pool = Pool()
write_task(pool, parse_options(options), Task("of-a-test", 0, 0), [pa.record_batch({"value": [b"two"]})])
pool.close()
print(sorted(name for name in set(sys.modules) - KNOWN if name.startswith("strandline.") or name == "pyspark"))
"""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmPython]:
    process = WarmPython()
    yield process
    process.close()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "reads_and_writes.py").write_text(WORKER)
    return tmp_path


def run(python: Path | str, modules: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [str(python), *arguments],
        cwd=modules,
        env=os.environ | {"PYTHONPATH": str(modules), "PYTHONHASHSEED": "0"} | environment,
        input="from stdin",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("code", ["0", "3"])
def test_a_child_is_what_python_would_have_been(warm: WarmPython, modules: Path, code: str) -> None:
    arguments = ("-m", "probe", code, "and more")
    told = run(warm.executable, modules, *arguments, SEEN="a b=c")
    assert told == run(sys.executable, modules, *arguments, SEEN="a b=c")
    assert told[0] == int(code)


def test_what_it_has_imported_is_there(warm: WarmPython, modules: Path) -> None:
    (modules / "imported.py").write_text("import sys; print('strandline.spark.data_source' in sys.modules)")
    assert run(warm.executable, modules, "-m", "imported")[1] == "True\n"
    assert run(sys.executable, modules, "-m", "imported")[1] == "False\n"


def test_a_source_and_a_sink_find_all_of_theirs_imported(
    warm: WarmPython, modules: Path, broker: EmbeddedBroker, topic: str
) -> None:
    """A fifth of a second of CPU in each process of each query, otherwise."""
    broker.create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(60) == 0
    code, output, errors = run(warm.executable, modules, "-m", "reads_and_writes", broker.bootstrap, topic)
    assert (code, output) == (0, "[]\n"), errors


def test_it_has_one_thread_when_it_forks(warm: WarmPython, modules: Path) -> None:
    assert run(warm.executable, modules, "-m", "probe", "0")[0] == 0, "its imports are done when it answers"
    assert len(os.listdir(f"/proc/{warm.pid}/task")) == 1


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(("-c", "import sys; print('strandline.spark' in sys.modules)"), {}), (("-m", "seed"), {"PYTHONHASHSEED": "7"})],
)
def test_what_it_cannot_do_plain_python_does(
    warm: WarmPython, modules: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    (modules / "seed.py").write_text("print(hash('text'))")
    assert run(warm.executable, modules, *arguments, **environment) == run(
        sys.executable, modules, *arguments, **environment
    )


def test_without_the_warm_process_it_is_plain_python(modules: Path) -> None:
    warm = WarmPython()
    os.kill(warm.pid, signal.SIGKILL)
    try:
        assert run(warm.executable, modules, "-m", "probe", "5")[0] == 5
    finally:
        warm.close()
    assert not warm.executable.exists()


@pytest.fixture
def client(warm: WarmPython, modules: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One whose child sleeps."""
    with subprocess.Popen(
        [str(warm.executable), "-m", "sleeper"],
        cwd=modules,
        env=os.environ | {"PYTHONPATH": str(modules), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
    ) as process:
        yield process


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGKILL])
def test_who_kills_the_client_kills_the_child(client: subprocess.Popen[bytes], blow: signal.Signals) -> None:
    assert client.stdout is not None
    child = int(client.stdout.readline())
    assert child != client.pid
    client.send_signal(blow)
    client.wait(10)
    while is_alive(child):
        time.sleep(0.02)


def test_the_end_of_a_child_is_the_end_of_its_client(client: subprocess.Popen[bytes]) -> None:
    assert client.stdout is not None
    os.kill(int(client.stdout.readline()), signal.SIGKILL)
    assert client.stdout.read() == b"", "nobody keeps the stream open that Spark reads"
    assert client.wait(10) == 128 + signal.SIGKILL


def test_a_child_and_its_client_may_end_at_one_blow(warm: WarmPython, modules: Path) -> None:
    for _ in range(3):
        with subprocess.Popen(
            [str(warm.executable), "-m", "sleeper"],
            cwd=modules,
            env=os.environ | {"PYTHONPATH": str(modules), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
        ) as client:
            assert client.stdout is not None
            child = int(client.stdout.readline())
            os.kill(warm.pid, signal.SIGSTOP)  # It sees both at once when it goes on.
            os.kill(child, signal.SIGKILL)
            while is_alive(child):
                time.sleep(0.001)
            client.kill()
            client.wait(10)
            os.kill(warm.pid, signal.SIGCONT)
    assert len(os.listdir(f"/proc/{warm.pid}/task")) == 1, "it lives"
    (modules / "imported.py").write_text("import sys; print('strandline.spark.data_source' in sys.modules)")
    assert run(warm.executable, modules, "-m", "imported")[1] == "True\n"


def test_it_ends_with_who_started_it() -> None:
    code = "from strandline.spark.warm_python.starting import WarmPython; import os; w = WarmPython(); "
    code += "print(w.pid, w.executable, flush=True); os.killpg(os.getpgid(0), 9)"
    starter = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )
    pid, executable = starter.stdout.split()
    while is_alive(int(pid)):
        time.sleep(0.02)
    assert not Path(executable).parent.exists(), "nothing is left behind"


def test_a_process_that_the_driver_starts_knows_nothing_of_it(spark: SparkSession) -> None:
    assert "strandline-python" in spark.sparkContext.pythonExec
    assert {os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]} == {sys.executable}


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
