"""Spoilt input by the thousand, from a seed; what breaks a target is made small and kept.

A target takes bytes and returns, or raises one of its declared errors. Anything else is a find: the input is cut down
to what still breaks it and kept in `tests/hostile/regressions`, where the default tests replay it from then on.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from strandline.errors import StrandlineError

REGRESSIONS = Path(__file__).parents[1] / "hostile" / "regressions"
POOL = 60
"""Sound inputs of one run. Making them costs more than spoiling them, so each is spoilt again and again."""
RANDOM_BYTES_MAX = 2000
SHRINK_STEPS_MAX = 2000

_NUMBERS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
)


class Target(NamedTuple):
    """Something that reads bytes of strangers."""

    name: str
    read: Callable[[bytes], Any]
    errors: tuple[type[StrandlineError], ...]
    sound: Callable[[random.Random], bytes]
    """A sound input, to be spoilt."""


class Find(AssertionError):
    """Input that a target failed on."""


def spoil(sound: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(sound)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(spoilt) + 1)
        match rng.randrange(8):
            case 0:
                del spoilt[at:]
            case 1:
                spoilt[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2 | 3:
                number = rng.choice(_NUMBERS)
                spoilt[at : at + len(number)] = number
            case 4:
                del spoilt[at : at + rng.randint(1, 8)]
            case 5:
                end = min(len(spoilt), at + rng.randint(1, 40))
                spoilt[at:at] = spoilt[at:end] * rng.choice((1, 1, 3, 50))
            case 6:
                if at < len(spoilt):
                    spoilt[at] ^= 1 << rng.randrange(8)
            case _:
                spoilt[at : at + 1] = rng.randbytes(1)
    return bytes(spoilt)


def inputs(sound: Callable[[random.Random], bytes], examples: int, rng: random.Random) -> Iterator[bytes]:
    """Nothing at all, then a tenth of any bytes and the rest spoilt."""
    pool = [sound(rng) for _ in range(min(POOL, max(3, examples // 8)))]
    yield b""
    for number in range(examples - 1):
        yield rng.randbytes(rng.randrange(RANDOM_BYTES_MAX)) if number % 10 == 0 else spoil(rng.choice(pool), rng)


def fuzz(target: Target, examples: int, seed: int) -> None:
    for data in inputs(target.sound, examples, random.Random(f"{seed} {target.name}")):
        error = failure(target, data)
        if error is not None:
            small = shrink(partial(_fails_alike, target, type(error)), data)
            path = keep(target.name, small)
            raise Find(
                f"{target.name} fails with {error!r} on {small.hex()}; seed {seed}; kept as {path.name}"
            ) from error


def _fails_alike(target: Target, kind: type[BaseException], data: bytes) -> bool:
    return type(failure(target, data)) is kind


def failure(target: Target, data: bytes) -> BaseException | None:
    """What a target raised that it had not declared."""
    try:
        target.read(data)
    except target.errors:
        return None
    except Exception as error:
        return error
    return None


def shrink(fails: Callable[[bytes], bool], data: bytes) -> bytes:
    """The same failure with less: pieces taken out, then bytes made zero."""
    steps = 0
    size = max(1, len(data) // 2)
    while size and steps < SHRINK_STEPS_MAX:
        at = 0
        while at < len(data) and steps < SHRINK_STEPS_MAX:
            steps += 1
            smaller = data[:at] + data[at + size :]
            if fails(smaller):
                data = smaller
            else:
                at += size
        size //= 2
    for at in range(len(data)):
        plain = data[:at] + b"\0" + data[at + 1 :]
        if data[at] and steps < SHRINK_STEPS_MAX and fails(plain):
            data = plain
            steps += 1
    return data


def keep(target_name: str, data: bytes) -> Path:
    REGRESSIONS.mkdir(exist_ok=True)
    path = REGRESSIONS / f"{file_name(target_name)}--{hashlib.sha256(data).hexdigest()[:10]}.bin"
    path.write_bytes(data)
    return path


def file_name(target_name: str) -> str:
    return target_name.replace(" ", "_").replace("/", "_")


def kept() -> list[tuple[str, Path]]:
    """Target (as in a file name) and path of everything that once broke something."""
    return [(path.name.partition("--")[0], path) for path in sorted(REGRESSIONS.glob("*.bin"))]
