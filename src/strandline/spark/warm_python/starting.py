"""Starts the warm process beside Spark, and says what to give Spark in the place of Python."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from strandline.spark.warm_python import client, server

SWITCH: Final = "STRANDLINE_SPARK_WARM_PYTHON"
"""Environment: `0` has Spark start plain Python."""
SCRIPT: Final = "python"


class WarmPython:
    """The process, its socket, and the client beside it. Ends with this process, however that ends."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="strandline-python-"))
        self.executable = self._directory / SCRIPT
        source = Path(client.__file__).read_text()
        # `-I` and `-S`: no paths of the user's, no site packages; it is nothing but a messenger.
        self.executable.write_text(f"#!{sys.executable} -IS\n{source}")
        self.executable.chmod(self.executable.stat().st_mode | stat.S_IXUSR)
        environment = os.environ | {
            "PYTHONHASHSEED": server.HASH_SEED,
            # Threads that exist when a process forks are not there in the child: none may be started by an import.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(str(self._directory / client.SOCKET_NAME))
            # Clients may come before anything is imported; they wait, and are still served sooner.
            door.listen(128)
            self._process = subprocess.Popen(
                [sys.executable, "-m", server.__name__, str(self._directory), str(door.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                pass_fds=(door.fileno(),),
                # A blow at the driver's group must not hit it: it ends by itself then, and leaves nothing behind.
                start_new_session=True,
            )
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        atexit.unregister(self.close)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)  # If it was killed; else it has done so itself.


_running: list[WarmPython] = []


def warm_python() -> str | None:
    """The path of the client, with the process started that it asks; None where that is not wanted, or cannot be."""
    if os.environ.get(SWITCH, "1") == "0" or not hasattr(os, "pidfd_open") or len(sys.executable) > 100:
        return None
    if not _running:
        _running.append(WarmPython())
    return str(_running[0].executable)
