"""A standalone Spark as processes on this machine: one master, some workers, and a Python that knows nothing of us."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from strandline.local.free_ports import free_port
from strandline.spark.java import find_java_home

START_S_MAX = 180.0
BARE_PACKAGES = (
    "pyspark",
    "py4j",
    "pyarrow",
    "pyarrow.libs",
    "numpy",
    "numpy.libs",
    "pandas",
    "dateutil",
    "pytz",
    "tzdata",
    "six.py",
)


@dataclass
class StandaloneCluster:
    home: Path
    master: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]

    def start_worker(self, *, cores: int = 1, host: str = "127.0.0.1") -> None:
        number = len(self.processes)
        work = self.home / f"worker-{number}"
        arguments = ["--host", host, "--webui-port", "0", "--cores", str(cores), "--memory", "1g"]
        self._start("worker.Worker", [*arguments, "--work-dir", str(work), self.master])
        self._wait_for(rf"(Registering worker .*){{{number}}}", "master.Master-0")

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self, name: str, arguments: list[str]) -> None:
        environ = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        environ |= {"JAVA_HOME": str(find_java_home(os.environ)), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(Path(pyspark.__path__[0], "bin", "spark-class")), f"org.apache.spark.deploy.{name}", *arguments]
        with self._log(f"{name}-{len(self.processes)}").open("wb") as log:
            self.processes.append(
                subprocess.Popen(command, cwd=self.home, env=environ, stdout=log, stderr=subprocess.STDOUT)
            )

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _wait_for(self, pattern: str, name: str) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not re.search(pattern, self._log(name).read_text(), re.DOTALL):
            if time.monotonic() > deadline or self.processes[-1].poll() is not None:
                raise TimeoutError(
                    f"{self.processes[-1].args}: no {pattern!r} in {self._log(name).read_text()[-2000:]}"
                )
            time.sleep(0.2)


@contextlib.contextmanager
def standalone_cluster(home: Path, *, workers: int) -> Iterator[StandaloneCluster]:
    port = free_port()
    cluster = StandaloneCluster(home, f"spark://127.0.0.1:{port}")
    try:
        cluster._start("master.Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"])
        cluster._wait_for("I have been elected leader", "master.Master-0")
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def bare_python(home: Path) -> Path:
    """A Python with pyspark and pyarrow, and without Strandline or any client or codec that it uses."""
    venv.create(home, symlinks=True, with_pip=False)
    ours = Path(sysconfig.get_paths()["purelib"])
    theirs = Path(home, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    for name in BARE_PACKAGES:
        if (ours / name).exists():
            (theirs / name).symlink_to(ours / name)
    return home / "bin" / "python"
