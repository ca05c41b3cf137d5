"""Our code on executors that do not have it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.spark.standalone_cluster import bare_python, standalone_cluster

from strandline.codec.columns import _scan
from strandline.spark.shipping import archives

PROGRAM = """
import strandline.spark
spark = strandline.spark.session(master={master!r}, spark_cores_max=2)

def look(_):
    import cramjam, crc32c, lz4.frame, sys, zstandard
    import pyspark_strandline, strandline
    from strandline.codec.columns import _scan
    assert "site-packages" not in strandline.__file__ + zstandard.__file__
    return [(sys.executable, _scan.__file__)]

print(sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect())))
strandline.spark.ship(spark)
try:
    spark.read.format("strandline").option("subscribe", "orders").load()
except Exception as error:
    print(strandline.spark.explain_failure(error))
"""


def test_what_is_shipped_is_whole() -> None:
    names = {path.stem: path for path in archives()}
    assert {"strandline", "pyspark_strandline", "crc32c", "cramjam", "lz4", "zstandard"} <= set(names)
    with zipfile.ZipFile(names["strandline"]) as archive:
        entries = archive.namelist()
    assert "__init__.py" in entries
    assert f"codec/columns/{Path(_scan.__file__).name}" in entries
    assert not [entry for entry in entries if entry.endswith(".pyc")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_executors_without_strandline_run_our_code_and_the_compiled_decoder(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    refused = subprocess.run([python, "-c", "import pyspark, pyarrow, strandline"], capture_output=True, text=True)
    assert "No module named 'strandline'" in refused.stderr, refused.stderr
    with standalone_cluster(tmp_path, workers=2) as cluster:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(master=cluster.master)],
            env=os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert ended.returncode == 0, ended.stderr
    assert str(python) in ended.stdout
    assert Path(_scan.__file__).name in ended.stdout
    # The format is found by the driver's Python of that kind, too: what it misses is an option.
    assert "kafka.bootstrap.servers" in ended.stdout
