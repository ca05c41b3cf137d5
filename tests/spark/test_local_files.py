"""Files that Spark writes on this machine: as Hadoop's own classes write them, but without a process for each."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from strandline.spark import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER = "FileContextBasedCheckpointFileManager"
HADOOPS = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
    # Else a file system comes from a cache that knows nothing of settings.
    "fs.file.impl.disable.cache": "true",
}
FILES = 20
CHILD_FAULTS = 8
"""Which field behind the name of a process `/proc/PID/stat` has for page faults of children that have ended."""
FAULTS_OF_A_PROCESS_MIN = 20


def settings(spark: SparkSession, **changed: str) -> Any:
    assert spark._jvm is not None
    assert spark._jsc is not None
    found = spark._jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    for name, value in changed.items():
        found.set(name, value)
    return found


def path_of(spark: SparkSession, path: Path) -> Any:
    assert spark._jvm is not None
    return spark._jvm.org.apache.hadoop.fs.Path(str(path))


def manager(spark: SparkSession, home: Path, conf: Any) -> Any:
    """What Spark keeps a checkpoint with."""
    assert spark._jvm is not None
    package = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing
    return getattr(package, MANAGER)(path_of(spark, home), conf)


def fill(spark: SparkSession, home: Path, conf: Any) -> None:
    files = manager(spark, home, conf)
    files.createCheckpointDirectory()
    files.mkdirs(path_of(spark, home / "offsets"))
    for name, is_replaced in (("0", False), ("1", False), ("1", True)):
        stream = files.createAtomic(path_of(spark, home / "offsets" / name), is_replaced)
        stream.write(f"batch {name} {is_replaced}".encode())
        stream.close()
    files.delete(path_of(spark, home / "offsets" / "0"))


def listing(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(home)): (each.stat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in [home, *home.rglob("*")]
    }


def faults_of_children(spark: SparkSession) -> int:
    assert spark._jvm is not None
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[CHILD_FAULTS])


def test_what_is_shipped_was_made_of_its_source() -> None:
    with zipfile.ZipFile(local_files.JAR) as jar:
        made_of = jar.read("source.sha256").decode()
        names = {Path(name).stem for name in jar.namelist() if name.endswith(".class")}
    source = local_files.JAR.with_suffix(".java").read_bytes()
    assert made_of == hashlib.sha256(source).hexdigest(), "run tools/compile_local_files.py"
    assert names == set(local_files.CLASSES)


def test_a_checkpoint_is_what_hadoop_makes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, tmp_path / "ours", settings(spark))
    fill(spark, tmp_path / "theirs", settings(spark, **HADOOPS))
    ours = listing(tmp_path / "ours")
    assert ours == listing(tmp_path / "theirs")
    assert set(ours) == {".", "offsets", "offsets/1", "offsets/.1.crc"}
    # Either goes on where the other has ended.
    for name, conf in (("theirs", settings(spark)), ("ours", settings(spark, **HADOOPS))):
        stream = manager(spark, tmp_path / name, conf).open(path_of(spark, tmp_path / name / "offsets" / "1"))
        assert bytes(stream.readAllBytes()) == b"batch 1 True"
        stream.close()


def test_a_file_that_was_changed_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, tmp_path, settings(spark))
    changed = tmp_path / "offsets" / "1"
    changed.write_bytes(b"b" * changed.stat().st_size)
    files = path_of(spark, tmp_path).getFileSystem(settings(spark))
    with pytest.raises(Py4JError, match="ChecksumException"):
        files.open(path_of(spark, changed)).readAllBytes()


def test_no_process_is_started_for_a_file(spark: SparkSession, tmp_path: Path) -> None:
    files = manager(spark, tmp_path, settings(spark))
    before = faults_of_children(spark)
    for number in range(FILES):
        files.createAtomic(path_of(spark, tmp_path / str(number)), False).close()
    assert faults_of_children(spark) - before < FILES * FAULTS_OF_A_PROCESS_MIN


def test_all_bits_of_a_mode_and_links(spark: SparkSession, tmp_path: Path) -> None:
    assert spark._jvm is not None
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = path_of(spark, tmp_path).getFileSystem(settings(spark))
    assert files.getClass().getName() == local_files.SETTINGS["spark.hadoop.fs.file.impl"]
    (tmp_path / "directory").mkdir()
    for mode in ("1777", "0750"):
        files.setPermission(path_of(spark, tmp_path / "directory"), hadoop.permission.FsPermission(mode))
        assert (tmp_path / "directory").stat().st_mode & 0o7777 == int(mode, 8)
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    status = files.getFileLinkStatus(path_of(spark, tmp_path / "link"))
    assert status.isSymlink()
    assert status.getSymlink().toString() == f"file:{tmp_path}/directory"
    assert files.getFileLinkStatus(path_of(spark, tmp_path / "directory")).isDirectory()
    with pytest.raises(Py4JError, match="FileNotFoundException"):
        files.getFileLinkStatus(path_of(spark, tmp_path / "missing"))


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(local_files.SWITCH, "0")
    assert local_files.define(None) == {}


def test_with_another_hadoop_its_own_classes_are_used(caplog: pytest.LogCaptureFixture) -> None:
    def missing(name: str, *_: object) -> None:
        raise Py4JError(f"no {name}")

    lang = SimpleNamespace(
        Class=SimpleNamespace(forName=missing), ClassLoader=SimpleNamespace(getSystemClassLoader=lambda: None)
    )
    jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))
    with caplog.at_level(logging.WARNING, "strandline.spark.local_files"):
        assert local_files.define(jvm) == {}
    assert "no org.apache.hadoop.fs.local.LocalFs" in caplog.text
