"""What the registry answers when it can not do what was asked: Confluent's codes, which clients branch on.

The first three digits of a code are the HTTP status.
"""

from __future__ import annotations

from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
COMPATIBILITY_NOT_CONFIGURED: Final = 40408
MODE_NOT_CONFIGURED: Final = 40409
INCOMPATIBLE_SCHEMA: Final = 409
"""Confluent answers 40901 since 8.2, and answered 409 in the ten years before."""
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_COMPATIBILITY_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
OPERATION_NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_DOES_NOT_MATCH: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
INVALID_RULE_SET: Final = 42210
CONTEXT_NOT_EMPTY: Final = 42211
STORE_FAILED: Final = 50001
TIMED_OUT: Final = 50002
FORWARDING_FAILED: Final = 50003
NO_PRIMARY: Final = 50004
DENIED: Final = 40301


class RegistryError(Exception):
    """A request that the registry rejects: a code and a sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(id_or_guid: int | str | None = None) -> RegistryError:
    return RegistryError(
        SCHEMA_NOT_FOUND, "Schema not found" if id_or_guid is None else f"Schema {id_or_guid} not found"
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, reason)


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(OPERATION_NOT_PERMITTED, reason)
