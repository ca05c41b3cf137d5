"""The master that a user names: is it one, and does it answer?

Asked before Spark is started, because Spark itself asks a dead master three times for twenty seconds each and then
shows a page of Java.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Final

from strandline.spark.error_translation import SparkFailed

CONNECT_S_MAX: Final = 5.0

FORMS: Final = "local[*], local[4], spark://host:7077, yarn or k8s://https://host:port"
_LOCAL: Final = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:\s*,\s*\d+)?\])?")
_STANDALONE: Final = re.compile(r"spark://([^/\s]+)")
_OTHERS: Final = re.compile(r"yarn|k8s://\S+|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")


def is_local(master: str) -> bool:
    """Whether everything runs in this machine's one driver process, with our own Python."""
    return _LOCAL.fullmatch(master) is not None


def local_cores(master: str) -> int:
    match = _LOCAL.fullmatch(master)
    assert match is not None, master
    cores = match[1] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def check_master(master: str, environ: Mapping[str, str]) -> None:
    """Raise SparkFailed if `master` is no master, or a standalone one that does not answer."""
    if is_local(master):
        return
    if standalone := _STANDALONE.fullmatch(master):
        _check_standalone(master, standalone[1].split(","))
    elif not _OTHERS.fullmatch(master):
        raise SparkFailed(f"{master!r} is not a Spark master: use {FORMS}")
    elif master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise SparkFailed("for the master 'yarn' set HADOOP_CONF_DIR to the directory with the cluster's *-site.xml")


def _check_standalone(master: str, addresses: list[str]) -> None:
    refused = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise SparkFailed(f"{master!r} names no host and port: a standalone master is spark://host:7077")
        try:
            socket.create_connection((host, int(port)), CONNECT_S_MAX).close()
        except OSError as error:
            refused.append(f"{address}: {error.strerror or error}")
        else:
            # One of several is enough: Spark finds out which of them leads.
            return
    raise SparkFailed(
        f"no Spark master answers at {master} ({'; '.join(refused)}): start one with pyspark's sbin/start-master.sh, "
        "or leave the master out to run here"
    )
