"""Numbers, moments, intervals and arrays that Hypothesis chooses, in the text that PostgreSQL prints for them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.cdc.postgres_types_support import DEFAULTS, connected

from strandline.cdc.postgres.types import TypeCatalog, TypeSettings, captured_column
from strandline.cdc.postgres.types.moments import civil_of_days, days_of_civil

_TRIED: Final = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_NUMBERS: Final = st.decimals(allow_nan=False, allow_infinity=False, places=12) | st.decimals(
    allow_nan=False, allow_infinity=False, min_value=-(10**60), max_value=10**60
)
_TEXTS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_SECONDS_MAX: Final = 60 * 60 * 24 * 365 * 7000


class _Asking:
    """A session and the types of its database."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._catalog = TypeCatalog.load(connection)

    def of(self, expression: str, argument: Any, settings: TypeSettings = DEFAULTS) -> Any:
        """Return an expression of one argument as it is captured."""
        answer = self._connection.execute(f"select {expression}", [argument]).pgresult
        assert answer is not None
        column = captured_column(
            "v",
            answer.ftype(0),
            answer.fmod(0),
            is_optional=True,
            default=None,
            catalog=self._catalog,
            settings=settings,
        )
        assert column is not None
        text = answer.get_value(0, 0)
        return None if text is None else column.convert(text)


@pytest.fixture(scope="module")
def asking() -> Iterator[_Asking]:
    with connected() as connection:
        yield _Asking(connection)


@_TRIED
@given(_NUMBERS)
def test_a_numeric_without_scale_keeps_its_value_in_the_fewest_bytes(asking: _Asking, number: Decimal) -> None:
    found = asking.of("%s::numeric", number)
    unscaled = int.from_bytes(found["value"], "big", signed=True)
    assert Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -found["scale"])) == number
    assert found["scale"] == 0 or unscaled % 10
    assert len(found["value"]) == 1 or not (-128 <= unscaled < 128)
    assert asking.of("%s::numeric", number, TypeSettings(decimal="double")) == float(number)


@_TRIED
@given(st.decimals(allow_nan=False, allow_infinity=False, places=7, min_value=-(10**20), max_value=10**20))
def test_a_numeric_with_a_scale_is_a_decimal_of_this_scale(asking: _Asking, number: Decimal) -> None:
    found = asking.of("%s::numeric(40,7)", number)
    assert found == number
    assert found.as_tuple().exponent == -7
    assert asking.of("%s::numeric(40,7)", number, TypeSettings(decimal="string")) == f"{found:f}"


@_TRIED
@given(st.datetimes())
@example(datetime.datetime.min)
@example(datetime.datetime.max)
def test_moments_are_the_same_in_all_modes(asking: _Asking, moment: datetime.datetime) -> None:
    micros = (moment - _EPOCH) // datetime.timedelta(microseconds=1)
    assert asking.of("%s::timestamp", moment) == micros
    aware = moment.replace(tzinfo=datetime.UTC)
    in_connect = asking.of("%s::timestamp", moment, TypeSettings(time="connect"))
    assert in_connect == aware.replace(microsecond=moment.microsecond // 1000 * 1000)
    shown = asking.of("%s::timestamp", moment, TypeSettings(time="isostring"))
    assert datetime.datetime.fromisoformat(shown) == aware
    zoned = asking.of("%s::timestamptz", aware)
    assert datetime.datetime.fromisoformat(zoned) == aware
    assert len(zoned) == len("2026-01-01T00:00:00.000000Z")
    assert asking.of("%s::date", moment.date()) == (moment.date() - _EPOCH.date()).days
    assert asking.of("%s::time", moment.time()) == micros % 86_400_000_000


@_TRIED
@given(st.integers(-210_000_000_000, 9_000_000_000_000))
def test_moments_that_python_does_not_have_are_counted_as_postgresql_counts_them(asking: _Asking, second: int) -> None:
    # In days and seconds, because one number of seconds would be a float.
    moment = "timestamp '1970-01-01' + make_interval(days => (x / 86400)::int, secs => x %% 86400)"
    given_second = "from (values (%s::int8)) v (x)"
    assert asking.of(f"{moment} {given_second}", second) == second * 1_000_000
    days = asking.of(f"({moment})::date {given_second}", second)
    assert days == second // 86_400
    zoned = asking.of(f"({moment}) at time zone 'UTC' {given_second}", second)
    year, month, day = civil_of_days(days)
    assert zoned.endswith(f"-{month:02}-{day:02}T{second % 86_400 // 3600:02}{zoned[-14:]}")
    assert int(zoned[: zoned.index("-", 1)]) == year


@given(st.integers(-3_000_000_000, 3_000_000_000))
def test_days_and_dates_turn_into_each_other(days: int) -> None:
    assert days_of_civil(*civil_of_days(days)) == days


@_TRIED
@given(st.integers(-_SECONDS_MAX * 1_000_000, _SECONDS_MAX * 1_000_000))
def test_an_interval_of_seconds_is_within_a_rounding_of_its_microseconds(asking: _Asking, microseconds: int) -> None:
    # Debezium counts in floating point, and cuts.
    found = asking.of("%s * interval '1 microsecond'", microseconds)
    assert abs(found - microseconds) <= max(1, abs(microseconds) // 2**50)


@_TRIED
@given(st.lists(st.none() | _TEXTS, max_size=6))
def test_an_array_of_texts_keeps_every_character(asking: _Asking, texts: list[str | None]) -> None:
    assert asking.of("%s::text[]", texts) == texts
    assert asking.of("array[%s::text[]]", texts) == texts


@_TRIED
@given(st.lists(st.none() | st.floats(), max_size=6))
def test_an_array_of_floats_keeps_every_bit(asking: _Asking, floats: list[float | None]) -> None:
    assert repr(asking.of("%s::float8[]", floats)) == repr(floats)


@_TRIED
@given(st.binary(max_size=40))
def test_bytes_are_kept(asking: _Asking, raw: bytes) -> None:
    assert asking.of("%s::bytea", raw) == raw
    assert asking.of("%s::bytea", raw, TypeSettings(binary="hex")) == raw.hex()
