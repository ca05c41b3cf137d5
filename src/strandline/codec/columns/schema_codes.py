"""Numbers that `_validate` shares with those that call it: what is done with a schema id, programs, faults, limits."""

from __future__ import annotations

from typing import Final

FAULTS_MAX: Final = 1_000
"""Keys and values that are named for one batch; its later records are not looked at any more."""
LEVELS_MAX: Final = 1_000
"""Records, arrays and maps inside one another in one Avro payload."""
STEPS_MAX: Final = 20_000
"""Codes that a program may run for one payload, and `STEPS_PER_BYTE` more for each of its bytes."""
STEPS_PER_BYTE: Final = 32

# What is done with an id. A number from zero on is the place where its program begins.
ACCEPTED: Final = -1
REFUSED: Final = -2
EACH: Final = -3
"""The caller judges each payload."""
FIRST: Final = -4
"""The caller judges the payloads that do not begin with a zero byte; the others are accepted."""
NEW: Final = -5

# Codes of a program that read a number.
INT: Final = 0
LONG: Final = 1
ENUM: Final = 2
"""Operand: number of symbols."""
UNION: Final = 3
"""Operands: number of branches, place of each."""
BYTES: Final = 4
STRING: Final = 5
BLOCKS: Final = 6
"""Begins a block of an array or map. Operand: place behind the array or map."""
# Codes that read none.
NEXT: Final = 7
"""Ends an item. Operand: place of its BLOCKS."""
BOOLEAN: Final = 8
SKIP: Final = 9
"""Operand: number of bytes."""
JUMP: Final = 10
CALL: Final = 11
RETURN: Final = 12
END: Final = 13

# Why a key or value is among the faults.
KEYLESS: Final = 1
NO_ID: Final = 2
ID_REFUSED: Final = 3
TO_JUDGE: Final = 4
TOO_SHORT: Final = 5
BAD_NUMBER: Final = 6
BAD_INT: Final = 7
BAD_SYMBOL: Final = 8
BAD_BRANCH: Final = 9
BAD_LENGTH: Final = 10
BAD_TEXT: Final = 11
BAD_BOOLEAN: Final = 12
BAD_BLOCK: Final = 13
TOO_DEEP: Final = 14
TOO_LONG: Final = 15
BYTES_LEFT: Final = 16

WalkFault = tuple[int, bool, int, int, int, int, int]
"""Row, whether it is the key, schema id or -1, start and end of key or value, why, and where in the payload."""
