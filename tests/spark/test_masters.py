"""A master that is none, or does not answer, is told before Spark is started."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

import strandline.spark
from strandline.spark import SparkFailed
from strandline.spark.masters import check_master, is_local, local_cores


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port of ours on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("master", ["local", "local[*]", "local[3]", "local[2, 4]", "yarn", "k8s://https://h:6443"])
def test_masters(master: str) -> None:
    check_master(master, {"HADOOP_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("loca", "is not a Spark master: use local[*]"),
        ("local[0]", "is not a Spark master"),
        ("local[x]", "is not a Spark master"),
        ("http://host:7077", "is not a Spark master"),
        ("", "is not a Spark master"),
        ("spark://host", "names no host and port"),
        ("spark://:7077", "names no host and port"),
        ("spark://host:x", "names no host and port"),
        ("spark://host:70777", "names no host and port"),
        ("spark://no.such.host.invalid:7077", "no Spark master answers at spark://no.such.host.invalid:7077"),
        ("yarn", "HADOOP_CONF_DIR"),
    ],
)
def test_what_is_no_master_is_told_in_a_sentence(master: str, words: str) -> None:
    with pytest.raises(SparkFailed) as failed:
        check_master(master, {})
    (sentence,) = str(failed.value).splitlines()
    assert words in sentence


def test_one_of_several_masters_is_enough(deaf_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        check_master(f"spark://127.0.0.1:{deaf_port},127.0.0.1:{listening.getsockname()[1]}", {})


def test_a_session_on_a_dead_master_starts_no_java(deaf_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setitem(sys.modules, "strandline.spark.starting", None)
    with pytest.raises(SparkFailed, match=r"no Spark master answers .*Connection refused"):
        strandline.spark.session(master=f"spark://127.0.0.1:{deaf_port}")


def test_local_masters_and_their_cores() -> None:
    assert is_local("local[4]")
    assert not is_local("local-cluster[2,1,1024]")
    assert [local_cores(each) for each in ("local", "local[4]", "local[2,5]")] == [1, 4, 2]
    assert local_cores("local[*]") >= 1
