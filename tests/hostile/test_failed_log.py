"""A log that failed refuses everything, and forgets whom it refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import append, batch_of, open_log

from strandline.errors import DiskFailed


def test_a_refused_request_is_let_go(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"before"]))
    log.fail(DiskFailed("the disk is gone"))
    for _ in range(3):
        # What a connection received so far, and a view of it, as a handler has it.
        inbox = batch_of([b"x" * 100])
        with pytest.raises(DiskFailed, match="the disk is gone"):
            append(log, memoryview(inbox))  # type: ignore[arg-type]
        # Anybody who kept the view would make this fail, and with it the connection.
        del inbox[:1]
        with pytest.raises(DiskFailed, match="the disk is gone"):
            log.read(0, size_bytes_max=1000)
    assert log.failure is not None
    assert log.failure.__traceback__ is None, "the failure remembers who met it"
