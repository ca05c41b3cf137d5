"""Java classes that write Spark's local files without starting a process for each.

Hadoop starts `chmod` for each new file and `readlink` several times for each rename, because PySpark comes without
Hadoop's native library: ten processes for one file of a checkpoint. A batch of a stream writes two such files, a state
store several more. `LocalFiles.java` does the same in Java itself. `tools/compile_local_files.py` compiles it into
`LocalFiles.jar`; a test fails if the two differ.
"""

from __future__ import annotations

import logging
import os
import zipfile
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError

PACKAGE: Final = "org.apache.hadoop.fs.local"
JAR: Final = Path(__file__).with_name("LocalFiles.jar")
# Each behind those that it needs.
CLASSES: Final = (
    "LocalFiles",
    "LocalFiles$Raw",
    "LocalFiles$Checked",
    "LocalFiles$RawContext",
    "LocalFiles$CheckedContext",
)
SETTINGS: Final = {
    "spark.hadoop.fs.file.impl": f"{PACKAGE}.LocalFiles$Checked",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{PACKAGE}.LocalFiles$CheckedContext",
}
SWITCH: Final = "STRANDLINE_SPARK_LOCAL_FILES"
"""Environment: `0` leaves files to Hadoop's own classes."""

logger = logging.getLogger("strandline.spark.local_files")


def define(jvm: Any) -> dict[str, str]:
    """Settings with which Spark uses our classes, which this Java process knows from now on; none if it cannot, and
    Hadoop does its work as ever."""
    if os.name != "posix" or os.environ.get(SWITCH, "1") == "0":
        return {}
    try:
        _define(jvm)
    except Py4JError as error:
        # Another Hadoop than the one that these classes were made for: slower, not wrong.
        logger.warning("Spark will start processes for each file that it makes: %s", error)
        return {}
    return dict(SETTINGS)


def _define(jvm: Any) -> None:
    # Not initialized here: that takes its time, and comes when Spark needs it.
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    neighbour = jvm.java.lang.Class.forName(f"{PACKAGE}.LocalFs", False, loader)
    if _is_defined(jvm, loader):
        return
    handles = jvm.java.lang.invoke.MethodHandles
    # Beside Hadoop's own classes, where a name in a setting is found from wherever it is looked up. A jar would have to
    # be on the class path when Java starts, and that may have been before us.
    lookup = handles.privateLookupIn(neighbour, handles.lookup())
    with zipfile.ZipFile(JAR) as jar:
        for name in CLASSES:
            lookup.defineClass(jar.read(f"{PACKAGE.replace('.', '/')}/{name}.class"))


def _is_defined(jvm: Any, loader: Any) -> bool:
    """A Java process outlives a session that was stopped."""
    try:
        jvm.java.lang.Class.forName(f"{PACKAGE}.{CLASSES[-1]}", False, loader)
    except Py4JError:
        return False
    return True
