"""Makes src/strandline/spark/local_files/LocalFiles.jar of LocalFiles.java. Needs a JDK 17+ and PySpark's jars.

python tools/compile_local_files.py
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/strandline/spark/local_files/LocalFiles.java"
MADE_AT = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    javac = shutil.which("javac")
    if javac is None:
        print("no javac: LocalFiles.jar stays as it is", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        jars = Path(pyspark.__file__).parent / "jars"
        # Java 17 is the oldest that this Spark runs on.
        command = [javac, "--release", "17", "-g:source,lines", "-cp", f"{jars}/*", "-d", directory]
        subprocess.run([*command, str(SOURCE)], check=True)
        with zipfile.ZipFile(SOURCE.with_suffix(".jar"), "w", zipfile.ZIP_DEFLATED) as jar:
            digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
            jar.writestr(zipfile.ZipInfo("source.sha256", MADE_AT), digest)
            for path in sorted(Path(directory).rglob("*.class")):
                name = path.relative_to(directory).as_posix()
                jar.writestr(zipfile.ZipInfo(name, MADE_AT), path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
