"""A broker that may open only so many files."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from strandline.local.embedded_broker import EmbeddedBroker


@contextlib.contextmanager
def limited_broker(
    directory: Path, *, open_files: int, properties: dict[str, str] | None = None
) -> Iterator[EmbeddedBroker]:
    """The limit is set while the interpreter still starts; the hard one with it, because a broker raises its soft limit
    to the hard one."""
    with (directory / "standard-error").open("w+b") as stderr:
        broker = EmbeddedBroker(directory / "data", properties=properties, stderr=stderr)
        broker.spawn()
        soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        assert hard >= soft
        try:
            broker.wait_ready()
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (open_files, open_files)
            yield broker
            broker.stop()
        finally:
            broker.kill()
