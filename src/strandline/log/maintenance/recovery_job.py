"""The job of a worker that recovers one log: what a start would do on its loop, and would keep clients waiting for.

The worker opens the log as after a crash, flushes what it found, and closes it as a clean stop does. So the broker
opens it as after a clean stop. A worker that is killed on the way leaves a log that is recovered again.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from strandline.config.topic_config import TopicConfig
from strandline.log.disk import Disk
from strandline.log.log_loader import open_log
from strandline.log.segment.open_files import OpenFiles

CONFIG = ("cleanup_policy", "index_interval_bytes", "preallocate", "remote_storage_enable", "segment_bytes")
"""The settings that recovery depends on."""


def recover(params: dict[str, Any], *, disk: Disk) -> dict[str, Any]:
    """Recover the log in `directory`, and return where it ends. CorruptLog if it is damaged."""
    module, name = params["observer"].split(":")
    log = open_log(
        Path(params["directory"]),
        TopicConfig(**params["config"]),
        disk=disk,
        open_files=OpenFiles(disk),
        now_ms=params["now_ms"],
        observer=getattr(import_module(module), name)(params["producers_max"]),
        recovery_point=params["recovery_point"],
        log_start_offset=params["log_start_offset"],
        cleaned_up_to=params["cleaned_up_to"],
    )
    for path in map(Path, params["synced_with_it"]):
        if disk.exists(path):
            log.sync_with_next_flush(path)
    log.write_out(keeps_notes=True)
    log.close()
    return {"end_offset": log.log_end_offset, "noted": log.noted}
