"""The ways that were tried to make the decoder's scan fast, all behind the signature of `_scan.scan_records`.

Only `bench/decoder.py --all` comes here; docs/decisions/0003-one-decoder.md tells what came of it. They do less than
the product, which favours them: none walks headers (the bench has none), none guards a timestamp or the last byte of a
varint against overflow, and numba looks at no bounds unless told to.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

Scan = Callable[..., int]


class NotHere(Exception):
    """The contender's tool is not installed."""


def numpy_scan() -> Scan:
    """Find the records in a Python loop, which nothing can vectorise, then decode each field for all of them."""
    try:
        import numpy as np
    except ImportError as error:
        raise NotHere(str(error)) from error

    def varints(source: Any, positions: Any, bytes_max: int) -> tuple[Any, Any]:
        byte = source[positions].astype(np.uint64)
        values = byte & 0x7F
        positions = positions + 1
        more = np.nonzero(byte >= 0x80)[0]
        shift = 7
        while len(more):
            if shift >= 7 * bytes_max:
                raise ValueError("varint")
            byte = source[positions[more]].astype(np.uint64)
            values[more] |= (byte & 0x7F) << np.uint64(shift)
            positions[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64), positions

    def scan_records(
        payload: bytes,
        position: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        wide: array[int],
        narrow: array[int],
    ) -> int:
        starts = []
        ends = []
        for _ in range(count):
            length = payload[position]
            position += 1
            if length >= 0x80:
                byte = payload[position]
                position += 1
                length = length & 0x7F | (byte & 0x7F) << 7
                shift = 14
                while byte >= 0x80:
                    byte = payload[position]
                    position += 1
                    length |= (byte & 0x7F) << shift
                    shift += 7
            starts.append(position)
            position += length >> 1
            ends.append(position)
        if position > end:
            raise ValueError("length")
        source = np.frombuffer(payload, np.uint8)
        wide_out = np.frombuffer(wide, np.int64)
        narrow_out = np.frombuffer(narrow, np.int32).reshape(-1, count)
        at = np.array(starts, np.int64) + 1
        record_ends = np.array(ends, np.int64)
        timestamp_deltas, at = varints(source, at, 10)
        offset_deltas, at = varints(source, at, 5)
        if (np.diff(offset_deltas) <= 0).any() or offset_deltas[0] < 0 or offset_deltas[-1] > last_offset_delta:
            raise ValueError("offset delta")
        wide_out[:count] = base_offset + offset_deltas
        wide_out[count:] = base_timestamp + timestamp_deltas
        for column in (0, 2):
            lengths, at = varints(source, at, 5)
            if (lengths < -1).any() or (lengths > record_ends - at).any():
                raise ValueError("length")
            narrow_out[column] = at
            narrow_out[column + 1] = lengths
            at = at + np.maximum(lengths, 0)
        header_counts, at = varints(source, at, 5)
        narrow_out[4] = at
        narrow_out[5] = header_counts
        if (at != record_ends).any():
            raise ValueError("record end")
        return position

    return scan_records


def numba_scan(*, boundscheck: bool = False) -> Scan:
    """The same loop as the product's, compiled by LLVM when first called."""
    try:
        import numba
        import numpy as np
    except ImportError as error:
        raise NotHere(str(error)) from error

    varint, scan = _typed_loop(numba.njit(boundscheck=boundscheck))
    del varint

    def scan_records(payload: bytes, position: int, end: int, *rest: Any) -> int:
        *numbers, wide, narrow = rest
        source = np.frombuffer(payload, np.uint8)
        return int(
            scan(source, position, end, *numbers, np.frombuffer(wide, np.int64), np.frombuffer(narrow, np.int32))
        )

    return scan_records


def _typed_loop(compile_function: Callable[[Any], Any]) -> tuple[Any, Any]:
    def varint_plain(payload, position, bytes_max):  # type: ignore[no-untyped-def]
        value = 0
        shift = 0
        for _ in range(bytes_max):
            byte = int(payload[position])
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
        raise ValueError("varint")

    varint = compile_function(varint_plain)

    def scan_plain(  # type: ignore[no-untyped-def]
        payload, position, end, count, base_offset, last_offset_delta, base_timestamp, wide, narrow
    ):
        offset_delta_min = 0
        for row in range(count):
            length, position = varint(payload, position, 5)
            if length < 0 or length > end - position:
                raise ValueError("record length")
            record_end = position + length
            timestamp_delta, position = varint(payload, position + 1, 10)
            offset_delta, position = varint(payload, position, 5)
            if offset_delta < offset_delta_min or offset_delta > last_offset_delta:
                raise ValueError("offset delta")
            offset_delta_min = offset_delta + 1
            wide[row] = base_offset + offset_delta
            wide[count + row] = base_timestamp + timestamp_delta
            for column in range(0, 4, 2):
                length, position = varint(payload, position, 5)
                if length < -1 or length > record_end - position:
                    raise ValueError("length")
                narrow[column * count + row] = position
                narrow[(column + 1) * count + row] = length
                position += max(length, 0)
            headers, position = varint(payload, position, 5)
            narrow[4 * count + row] = position
            narrow[5 * count + row] = headers
            if position != record_end:
                raise ValueError("record end")
        return position

    return varint, compile_function(scan_plain)


MYPYC_TEXT = """
from array import array
from mypy_extensions import i64

def scan_records(
    payload: bytes, position: i64, end: i64, count: i64, base_offset: i64, last_offset_delta: i64,
    base_timestamp: i64, wide: "array[int]", narrow: "array[int]",
) -> i64:
    offset_delta_min: i64 = 0
    row: i64 = 0
    while row < count:
        length, position = varint(payload, position, 5)
        if length < 0 or length > end - position:
            raise ValueError("record length")
        record_end = position + length
        timestamp_delta, position = varint(payload, position + 1, 10)
        offset_delta, position = varint(payload, position, 5)
        if offset_delta < offset_delta_min or offset_delta > last_offset_delta:
            raise ValueError("offset delta")
        offset_delta_min = offset_delta + 1
        wide[row] = base_offset + offset_delta
        wide[count + row] = base_timestamp + timestamp_delta
        column: i64 = 0
        while column < 4:
            length, position = varint(payload, position, 5)
            if length < -1 or length > record_end - position:
                raise ValueError("length")
            narrow[column * count + row] = position
            narrow[(column + 1) * count + row] = length
            if length > 0:
                position += length
            column += 2
        headers, position = varint(payload, position, 5)
        narrow[4 * count + row] = position
        narrow[5 * count + row] = headers
        if position != record_end:
            raise ValueError("record end")
        row += 1
    return position

def varint(payload: bytes, position: i64, bytes_max: i64) -> "tuple[i64, i64]":
    value: i64 = 0
    shift: i64 = 0
    while shift < 7 * bytes_max:
        byte: i64 = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("varint")
"""


def mypyc_scan() -> Scan:
    """The same loop with mypyc's native integers; it knows bytes, but arrays only as Python objects."""
    directory = Path(tempfile.mkdtemp())
    (directory / "scan_by_mypyc.py").write_text(MYPYC_TEXT)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "mypyc", "scan_by_mypyc.py"], cwd=directory, capture_output=True, text=True
        )
    except OSError as error:
        raise NotHere(str(error)) from error
    built = list(directory.glob("scan_by_mypyc.*.so"))
    if run.returncode or not built:
        raise NotHere((run.stderr or run.stdout).strip().splitlines()[-1])
    spec = importlib.util.spec_from_file_location("scan_by_mypyc", built[0])
    if spec is None or spec.loader is None:
        raise NotHere("mypyc built nothing that can be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scan: Scan = module.scan_records
    return scan


CONTENDERS: dict[str, Callable[[], Scan]] = {
    "numpy": numpy_scan,
    "numba": numba_scan,
    "numba, bounds": lambda: numba_scan(boundscheck=True),
    "mypyc": mypyc_scan,
}
