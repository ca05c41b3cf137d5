"""How fast the one decoder is: `python bench/decoder.py [--all] [--quick]`.

Measures CPU time (other work on the machine does not count, though it slows caches), the best of several rounds, for
both twins over batches of 100-byte values, plain and lz4; with `--all` the contenders of the decision as well. Writes
`bench/results/decoder.json` and `decoder.txt`. The promise: 2 million 100-byte records a second to
columns, CRC included, in batches of 16 KiB.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from decoder_contenders import CONTENDERS, NotHere, Scan
from strandline.codec.columns import Compression, Record, columns_of, decode, encode_batch, records_of
from strandline.codec.record_batch import HEADER_SIZE

RESULTS = Path(__file__).parent / "results"
PROMISE_PER_S = 2_000_000
PROMISE_RECORDS_PER_BATCH = 150
RECORDS_TOTAL = 100_000
ROUNDS_CPU_S_MIN = 0.3
VALUE = (b'{"order": 1234567, "customer": "c-000981", "state": "paid", "total": 1299}' * 2)[:100]


def best_of(rounds: int, call: Callable[[], Any]) -> float:
    """CPU seconds of the quickest of several calls, after one that warms up; short calls get more rounds."""
    call()
    best = float("inf")
    spent = 0.0
    while rounds > 0 or spent < ROUNDS_CPU_S_MIN:
        start = time.process_time()
        call()
        seconds = time.process_time() - start
        best = min(best, seconds)
        spent += seconds
        rounds -= 1
    return best


def batches_of(records_per_batch: int, codec: Compression) -> bytes:
    records = [
        Record(timestamp_ms=1_700_000_000_000 + index // 8, value=b"%07d" % index + VALUE[7:])
        for index in range(records_per_batch)
    ]
    batch = encode_batch(records, compression=codec)
    return batch * max(1, RECORDS_TOTAL // records_per_batch)


def twins() -> dict[str, ModuleType]:
    path = Path(decode.__file__).with_name("_scan.py")
    spec = importlib.util.spec_from_file_location("strandline.codec.columns._scan_plain", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {path}")
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    found = {"python": plain}
    if decode._scan.is_compiled():
        found["cython"] = decode._scan
    return found


def measure_twins(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, module in twins().items():
        decode._scan, decode._COMPILED = module, module.is_compiled()
        for codec in (Compression.NONE, Compression.LZ4):
            for records_per_batch in (1, 10, 150, 10_000):
                source = batches_of(records_per_batch, codec)
                count = records_per_batch * max(1, RECORDS_TOTAL // records_per_batch)
                columns = best_of(rounds, lambda source=source: sum(len(columns) for columns in columns_of(source)))
                records = best_of(rounds, lambda source=source: sum(1 for _ in records_of(source)))
                rows.append(
                    {
                        "decoder": name,
                        "codec": codec.name.lower(),
                        "records_per_batch": records_per_batch,
                        "columns_records_per_s": round(count / columns),
                        "objects_records_per_s": round(count / records),
                    }
                )
    return rows


def measure_scans(rounds: int, *, contenders: bool) -> list[dict[str, Any]]:
    """The scan alone, without CRC, header and containers: what the contenders differ in."""
    modules = twins()
    plain = modules["python"]
    scans: dict[str, Scan] = {name: module.scan_records for name, module in modules.items()}
    rows: list[dict[str, Any]] = []
    if contenders:
        for name, build in CONTENDERS.items():
            try:
                scans[name] = build()
            except NotHere as reason:
                rows.append({"scan": name, "missing": str(reason)})
    for name, scan in scans.items():
        row: dict[str, Any] = {"scan": name}
        for count in (10, 150, 10_000):
            batch = batches_of(count, Compression.NONE)
            payload = batch[HEADER_SIZE : 12 + int.from_bytes(batch[8:12], "big")]
            wide, narrow = array("q", bytes(16 * count)), array("i", bytes(24 * count))
            arguments = (payload, 0, len(payload), count, 0, count - 1, 1_700_000_000_000, wide, narrow)
            start = time.process_time()
            scan(*arguments)
            first = time.process_time() - start
            found = wide.tobytes(), narrow.tobytes()
            plain.scan_records(*arguments)
            if found != (wide.tobytes(), narrow.tobytes()):
                raise SystemExit(f"{name} decodes something else")
            calls = max(1, RECORDS_TOTAL // count // 10)
            seconds = best_of(rounds, lambda a=arguments, n=calls, scan=scan: [scan(*a) for _ in range(n)])
            row[f"batches_of_{count}_records_per_s"] = round(count * calls / seconds)
            row.setdefault("first_call_ms", round(first * 1000, 1))
        rows.append(row)
    return rows


def render(report: dict[str, Any]) -> str:
    lines = [
        f"One decoder, {report['machine']}, Python {report['python']}; million records of 100 bytes per CPU second",
        "",
    ]
    lines.append(f"{'decoder':9}{'codec':7}{'records/batch':>14}{'to columns':>12}{'to objects':>12}")
    for row in report["twins"]:
        lines.append(
            f"{row['decoder']:9}{row['codec']:7}{row['records_per_batch']:>14,}"
            f"{row['columns_records_per_s'] / 1e6:>12.2f}{row['objects_records_per_s'] / 1e6:>12.2f}"
        )
    lines += ["", f"{'scan alone':14}{'10/batch':>10}{'150/batch':>11}{'10,000/batch':>14}{'first call, ms':>16}"]
    for row in report["scans"]:
        if "missing" in row:
            lines.append(f"{row['scan']:14}not measured: {row['missing']}")
            continue
        figures = [row[f"batches_of_{count}_records_per_s"] / 1e6 for count in (10, 150, 10_000)]
        lines.append(
            f"{row['scan']:14}{figures[0]:>10.2f}{figures[1]:>11.2f}{figures[2]:>14.2f}{row['first_call_ms']:>16.1f}"
        )
    lines += [
        "",
        f"promise: {PROMISE_PER_S / 1e6:.0f} million/s at {PROMISE_RECORDS_PER_BATCH}/batch: {report['promise']}",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="measure NumPy, numba and mypyc as well")
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    options = arguments.parse_args()
    rounds = 1 if options.quick else 5
    chosen = decode._scan, decode._COMPILED
    name = decode.decoder_name()
    report: dict[str, Any] = {
        "machine": processor(),
        "python": platform.python_version(),
        "decoder": name,
        "scans": measure_scans(rounds, contenders=options.all),
        "twins": measure_twins(rounds),
    }
    decode._scan, decode._COMPILED = chosen
    # Of all sizes the promise takes 16 KiB, Java's default `batch.size`, and not the size that looks best.
    (promised,) = (
        row["columns_records_per_s"]
        for row in report["twins"]
        if (row["decoder"], row["codec"], row["records_per_batch"]) == (name, "none", PROMISE_RECORDS_PER_BATCH)
    )
    report["promise"] = "kept" if promised >= PROMISE_PER_S else f"not kept by {name}"
    text = render(report)
    print(text, end="")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "decoder.json").write_text(json.dumps(report, indent=2) + "\n")
    (RESULTS / "decoder.txt").write_text(text)
    return 0 if name == "python" or report["promise"] == "kept" else 1


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
