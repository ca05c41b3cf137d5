"""Classes that Java keeps: used where they are there, and a start without a word where they do not fit."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark import class_archive
from strandline.spark.error_translation import SparkFailed
from strandline.spark.java import find_java_home

SESSION = """
import strandline.spark
spark = strandline.spark.session("kept", master="local[1]")
print(spark.range(7).count())
"""
REPORT = "-Xlog:class+load:file="


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> class_archive.ArchivePlace:
    """In an environment that has no archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    place = class_archive.ArchivePlace(find_java_home(os.environ))
    place.directory.mkdir(parents=True)
    return place


def kept(place: class_archive.ArchivePlace, tmp_path: Path, content: bytes) -> Path:
    made = tmp_path / "made"
    made.write_bytes(content)
    return place.take(made)


def options(said: str = "-Duser=1", **environ: str) -> str:
    return class_archive.java_options({"JAVA_HOME": str(find_java_home(os.environ)), **environ}, said)


def test_java_is_told_of_an_archive_that_is_there(place: class_archive.ArchivePlace, tmp_path: Path) -> None:
    assert options() == ""
    archive = kept(place, tmp_path, b"classes")
    assert f"-XX:SharedArchiveFile={archive}" in shlex.split(options())
    assert options(STRANDLINE_SPARK_CLASS_ARCHIVE="0") == ""


def test_who_has_none_is_told_how_to_make_one(place: class_archive.ArchivePlace, tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(find_java_home(os.environ))}
    assert "`strandline spark prepare`" in class_archive.advice(environ)
    assert class_archive.advice({**environ, "STRANDLINE_SPARK_CLASS_ARCHIVE": "0"}) == ""
    kept(place, tmp_path, b"classes")
    assert class_archive.advice(environ) == ""


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/mine", "-ea -XX:ArchiveClassesAtExit=/mine"])
def test_an_archive_of_the_users_is_not_replaced(place: class_archive.ArchivePlace, tmp_path: Path, own: str) -> None:
    kept(place, tmp_path, b"classes")
    assert options(own) == ""


def test_one_that_was_cut_short_is_not_used(place: class_archive.ArchivePlace, tmp_path: Path) -> None:
    """Java would end with a bus error."""
    archive = kept(place, tmp_path, b"classes")
    os.truncate(archive, 3)
    assert options() == ""
    whole = kept(place, tmp_path, b"classes")
    assert place.archive() == whole
    place.base.write_bytes(b"another Java's")
    assert options() == "", "it was made on another one"


def test_a_new_one_replaces_the_old(place: class_archive.ArchivePlace, tmp_path: Path) -> None:
    kept(place, tmp_path, b"old classes")
    archive = kept(place, tmp_path, b"classes")
    assert list(place.directory.iterdir()) == [archive]
    assert class_archive.ArchivePlace(tmp_path / "another").archive() is None


def test_an_environment_with_a_blank_in_its_name_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    assert class_archive.advice({"JAVA_HOME": str(find_java_home(os.environ))}) == ""
    with pytest.raises(SparkFailed, match="has a blank in it"):
        class_archive.make(os.environ, ["nothing is started"])


@pytest.mark.parametrize("content", [b"", b"no archive", bytes(1_000_000)])
def test_what_is_none_is_done_without_and_nothing_is_printed(
    place: class_archive.ArchivePlace, tmp_path: Path, content: bytes
) -> None:
    kept(place, tmp_path, content)
    java = find_java_home(os.environ) / "bin" / "java"
    ended = subprocess.run([java, *shlex.split(options()), "--version"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "cds" not in ended.stdout


@pytest.mark.slow
def test_a_session_takes_sparks_classes_from_it(tmp_path: Path) -> None:
    """Through the command, in an environment of its own that has this one's packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    made = subprocess.run(
        [python, "-m", "strandline", "spark", "prepare", "--json"], env=environ, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert Path(told["archive"]).is_relative_to(tmp_path / "env")
    assert Path(told["archive"]).stat().st_size == told["bytes"]
    loaded = tmp_path / "loaded"
    environ["SPARK_SUBMIT_OPTS"] = f"{REPORT}{loaded}"
    ended = subprocess.run([python, "-c", SESSION], env=environ, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "7\n"), ended.stderr
    lines = [line for line in loaded.read_text().splitlines() if "] org.apache.spark." in line]
    mapped = [line for line in lines if "source: shared objects file" in line]
    read = [line for line in lines if "source: file:" in line]
    assert len(mapped) > 1000 > 10 * len(read)
