"""Profiles of column types in Debezium's handling modes."""

from __future__ import annotations

from typing import Final

from tests.cdc import typed_tables
from tests.cdc.profile import CdcProfile


def _types(name: str, settings: dict[str, str], *, is_default: bool = False) -> CdcProfile:
    return CdcProfile(
        name,
        settings,
        (*typed_tables.creation(), *typed_tables.rows(1)),
        (
            *typed_tables.rows(11),
            "update t_number set nn = 99 where id = 11",
            "update t_time set d = null where id = 11",
            "update t_array set a2 = '{7}' where id = 11",
            "delete from t_number where id = 12",
            "delete from t_text where id = 12",
            "delete from t_time where id = 13",
        ),
        is_default,
    )


def _edges(name: str, settings: dict[str, str]) -> CdcProfile:
    return CdcProfile(
        name,
        settings,
        (*typed_tables.EDGE_TIMES, *typed_tables.edges(1)),
        (*typed_tables.edges(11), "delete from t_edge where id = 11"),
    )


TYPE_PROFILES: Final = (
    _types("types-default", {}, is_default=True),
    _types(
        "types-connect",
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "interval.handling.mode": "string",
            "hstore.handling.mode": "map",
            "binary.handling.mode": "hex",
        },
    ),
    _types("types-isostring", {"time.precision.mode": "isostring", "binary.handling.mode": "base64"}),
    _types(
        "types-microseconds",
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "microseconds",
            "binary.handling.mode": "base64-url-safe",
            "money.fraction.digits": "4",
        },
    ),
    _types(
        "types-nanoseconds",
        {
            "time.precision.mode": "nanoseconds",
            "include.unknown.datatypes": "true",
        },
    ),
    _types(
        "types-source",
        {
            "time.precision.mode": "adaptive_time_microseconds",
            "column.propagate.source.type": r"public\..*",
            "include.unknown.datatypes": "true",
            "binary.handling.mode": "base64",
        },
    ),
    _edges("edges-default", {}),
    _edges("edges-connect", {"decimal.handling.mode": "string", "time.precision.mode": "connect"}),
    _edges("edges-isostring", {"time.precision.mode": "isostring"}),
)
