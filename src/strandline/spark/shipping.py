"""Brings our code to the executors of a cluster whose machines have only Python with pyspark and what that needs.

A file given with `--py-files` would not do: Python cannot load the compiled decoder, or a codec, out of a zip. So
each package becomes an archive that Spark unpacks into the executor's directory under the package's own name, and that
directory is on the path of every Python worker, also of those that Spark starts for a data source.

The compiled parts are those of this machine: driver and executors need the same platform and, as PySpark itself asks,
the same minor version of Python. Where they differ, install Strandline on the executors and say `ship=False`.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("strandline", "pyspark_strandline", "pyspark_strandline_delta", "pyspark_strandline_iceberg")
DISTRIBUTIONS: Final = ("crc32c", "cramjam", "lz4", "zstandard")
"""What tasks import beside what pyspark itself needs there (pyarrow, numpy, pandas)."""


def ship(spark: SparkSession) -> None:
    """Give the executors of `spark` our code, the decoder as it is compiled here, and the codecs."""
    context = spark.sparkContext
    there = {Path(address.rpartition("#")[0] or address).name for address in context.listArchives}
    there |= {Path(address).name for address in context.listFiles}
    for archive in archives():
        if archive.name not in there:
            if archive.suffix == ".zip":
                context.addArchive(f"{archive}#{archive.stem}")
            else:
                context.addFile(str(archive))


@functools.cache
def archives() -> list[Path]:
    """One zip for each package, and what is a single file as it is; made once and kept until this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="strandline-ship-"))
    # Spark serves them from here for as long as an executor may still come.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = []
    for name, root in _package_directories():
        archive = directory / f"{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as writer:
            for path in _files_below(root):
                writer.write(path, path.relative_to(root))
        made.append(archive)
    return made + list(_single_files())


def _package_directories() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield name, Path(spec.origin).parent
    for distribution in DISTRIBUTIONS:
        seen: dict[str, Path] = {}
        for path in _installed(distribution):
            if len(path.parts) > 1:
                # A wheel's own libraries lie beside its package, in `<package>.libs`: their place is relative.
                seen[path.parts[0]] = Path(str(path.locate())).parents[len(path.parts) - 2]
        yield from seen.items()


def _single_files() -> Iterator[Path]:
    for distribution in DISTRIBUTIONS:
        for path in _installed(distribution):
            if len(path.parts) == 1:
                yield Path(str(path.locate()))


def _installed(distribution: str) -> Iterable[importlib.metadata.PackagePath]:
    """Its files in site-packages; the metadata too, because some packages look up their own version there."""
    for path in importlib.metadata.files(distribution) or ():
        if path.parts[0] not in ("..", "__pycache__"):
            yield path


def _files_below(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
