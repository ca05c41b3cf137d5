"""The files of a new connector project, with `@name@` where a name is put in."""

from __future__ import annotations

from typing import Final

PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "@project@"
version = "0.1.0"
description = "A Strandline connector."
requires-python = ">=3.11"
dependencies = ["strandline[connect]"]

[project.entry-points."strandline.connectors"]
@class@ = "@module@:@class@"

[tool.hatch.build.targets.wheel]
include = ["@module@.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

SOURCE: Final = '''\
"""A source of numbers: change `read` to read what you have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from strandline import connect


class @class@(connect.Source):
    """Counts from 0 up to a limit."""

    class Config(connect.Config):
        """Settings, by their names with dots: `pause_ms` is `pause.ms`."""

        topic: str = connect.option("The topic that numbers are written to.")
        limit: int = connect.option("How many numbers there are.", default=10, low=0)
        pause_ms: int = connect.option("Pause between two numbers.", default=0, low=0)

    config: Config

    async def read(self, offsets: connect.SourceOffsets) -> AsyncIterator[connect.Batch]:
        """Yield records with the position behind them. Both are stored in one transaction, so none comes twice."""
        partition = {"counter": 0}
        stored = offsets.get(partition) or {"next": 0}
        for number in range(stored["next"], self.config.limit):
            record = connect.SourceRecord(key=str(number), value={"number": number})
            yield connect.Batch([record], partition, {"next": number + 1})
            await asyncio.sleep(self.config.pause_ms / 1000)
'''

SINK: Final = '''\
"""A sink that writes lines to a file: change `write` to write where you want."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

from strandline import connect


class @class@(connect.Sink):
    """Appends a line of JSON for each record."""

    class Config(connect.Config):
        """Settings, by their names with dots."""

        file: str = connect.option("The file that lines are appended to.")

    config: Config
    _opened: IO[str]

    def open(self) -> None:
        """Open the file. A plain method runs in a thread, so it may wait."""
        path: Path = self.paths.check(self.config.file)
        self._opened = path.open("a", encoding="utf-8")

    def write(self, batch: connect.SinkBatch) -> None:
        """Write records. Raise connect.RetriableFailure if the target is away, and the batch comes again."""
        for record in batch:
            try:
                line = json.dumps({"key": record.key, "value": record.value})
            except TypeError as error:
                raise connect.RecordFailed(f"{record.place} is no JSON: {error}", record) from error
            self._opened.write(f"{line}\\n")

    def flush(self) -> None:
        """Store what was written. Offsets are committed after this, so a crash may repeat lines, and loses none."""
        self._opened.flush()
        os.fsync(self._opened.fileno())

    def close(self) -> None:
        """Close the file. Called also if `open` has failed."""
        if hasattr(self, "_opened"):
            self._opened.close()
'''

SOURCE_YAML: Final = """\
# python -m strandline connect run @module@.yaml
# After `pip install -e .` the class is @class@, without the module, and `worker` is not needed.
worker:
  plugin.modules: @module@
connectors:
  @project@-demo:
    connector.class: @module@:@class@
    topic: numbers
    limit: 10
"""

SINK_YAML: Final = """\
# python -m strandline connect run @module@.yaml
# After `pip install -e .` the class is @class@, without the module, and `worker` is not needed.
worker:
  plugin.modules: @module@
connectors:
  @project@-demo:
    connector.class: @module@:@class@
    topics: numbers
    file: numbers.jsonl
"""

SOURCE_TEST: Final = '''\
"""Runs the source on a real broker, as its YAML says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import strandline
from confluent_kafka import Consumer

HERE = Path(__file__).parent
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def run(bootstrap: str) -> None:
    command = [sys.executable, "-m", "strandline", "connect", "run", "@module@.yaml", "--once"]
    subprocess.run([*command, "--bootstrap", bootstrap], cwd=HERE, check=True, timeout=120)


def numbers(bootstrap: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["numbers"])
    found = []
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(json.loads(message.value())["number"])
    finally:
        consumer.close()
    return found


def test_each_number_is_written_once_also_after_a_second_run() -> None:
    with strandline.embedded(properties=AT_ONCE) as log:
        run(log.bootstrap)
        run(log.bootstrap)
        assert numbers(log.bootstrap) == list(range(10))
'''

SINK_TEST: Final = '''\
"""Runs the sink on a real broker, as its YAML says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import strandline
from confluent_kafka import Producer

HERE = Path(__file__).parent
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def test_each_record_is_a_line(tmp_path: Path) -> None:
    for name in ("@module@.py", "@module@.yaml"):
        shutil.copy(HERE / name, tmp_path)
    with strandline.embedded(properties=AT_ONCE) as log:
        producer = Producer({"bootstrap.servers": log.bootstrap})
        for number in range(10):
            producer.produce("numbers", key=json.dumps(str(number)), value=json.dumps({"number": number}))
        assert producer.flush(30) == 0
        command = [sys.executable, "-m", "strandline", "connect", "run", "@module@.yaml", "--once"]
        subprocess.run([*command, "--bootstrap", log.bootstrap], cwd=tmp_path, check=True, timeout=120)
    lines = [json.loads(line) for line in (tmp_path / "numbers.jsonl").read_text().splitlines()]
    assert [line["value"]["number"] for line in lines] == list(range(10))
'''

FILES: Final = {
    "source": {"@module@.py": SOURCE, "test_@module@.py": SOURCE_TEST, "@module@.yaml": SOURCE_YAML},
    "sink": {"@module@.py": SINK, "test_@module@.py": SINK_TEST, "@module@.yaml": SINK_YAML},
}
"""The files of each kind, by their names; each has a pyproject.toml, too."""
