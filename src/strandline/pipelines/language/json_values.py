"""How the records of a source become rows: by our source, and by Spark where it cannot.

The source's options `valueSchema` and `keySchema` parse whole batches with Arrow, for a half to a third of the CPU time
that Spark's own from_json takes, and take nothing that is not exactly as the schema says. Few types are left to
from_json, which is more lenient: a column of such a type, and no other, is what from_json makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from strandline.spark.source.source_spec import (
    COLUMNS,
    CORRUPT_COLUMN,
    CORRUPT_KEY_COLUMN,
    KEY_COLUMN,
    MADE_COLUMNS,
    REGISTRY,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT: Final = CORRUPT_COLUMN
READ: Final = {"timeZone": "UTC", "columnNameOfCorruptRecord": CORRUPT}
"""Of from_json. A time without a zone is in UTC, as it is for our source."""
_PLAIN: Final = (
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    TimestampType,
    TimestampNTZType,
    DateType,
    BinaryType,
)
_TAKEN: Final = frozenset(name.lower() for name in (*COLUMNS, *MADE_COLUMNS))
_VALUE: Final = "__value"
_OTHERS: Final = "__others"
NO_KEY: Final = "the record has no key"
BAD_KEY: Final = "the key does not fit the schema"
BAD_VALUE: Final = "the value does not fit the schema"
QUOTED_LENGTH_MAX: Final = 200
"""Of a key or value that does not fit, in the sentence that says so."""


class RowReading:
    """How records become rows of a schema. Columns of the record keep their names beside those of this class."""

    def __init__(self, schema: StructType, key: Sequence[str], *, reader_schema: str | None = None) -> None:
        """`reader_schema` says that values have ids of a registry's schemas, and what they are read by."""
        self._schema = schema
        self._key = key
        self._reader_schema = reader_schema
        in_value = [field for field in schema.fields if field.name not in key]
        self._others = [field for field in in_value if reader_schema is None and not is_known(field.dataType)]
        self._known = [field for field in in_value if field not in self._others]

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the source."""
        found: dict[str, str] = {}
        if self._reader_schema is not None:
            found |= {"valueSchema": REGISTRY, "readerSchema": self._reader_schema, "valueColumn": _VALUE}
        elif self._known:
            found |= {"valueSchema": ddl(self._known), "valueColumn": _VALUE}
        if self._key:
            found["keySchema"] = ddl([self._schema[each] for each in self._key])
        return found

    @property
    def needs_value(self) -> bool:
        """Return whether Spark parses some of it."""
        return bool(self._others)

    def parsed(self, records: DataFrame) -> DataFrame:
        """Return the records with what Spark parses, in one column: it would parse once for each that is taken out."""
        if not self._others:
            return records
        shape = StructType([*self._others, StructField(CORRUPT, StringType())])
        return records.withColumn(_OTHERS, F.from_json(F.col("value").cast("string"), shape, READ))

    def columns(self) -> list[Column]:
        others = {field.name for field in self._others}
        found = []
        for each in self._schema.names:
            place = KEY_COLUMN if each in self._key else _OTHERS if each in others else _VALUE
            found.append(F.col(place).getField(each).alias(each))
        return found

    def misfit(self) -> Column:
        """Return why a record does not fit; null if it does."""
        found = F.lit(None).cast("string")
        if self._others:
            found = F.when(self._corrupt_others().isNotNull(), F.lit(BAD_VALUE))
        if self._reader_schema is not None:
            # It says why the value can not be read.
            found = F.col(CORRUPT)
        elif self._known:
            found = F.when(F.col(CORRUPT).isNotNull(), F.lit(BAD_VALUE)).otherwise(found)
        if self._key:
            bad_key = F.when(F.col("key").isNull(), F.lit(NO_KEY))
            found = bad_key.when(F.col(CORRUPT_KEY_COLUMN).isNotNull(), F.lit(BAD_KEY)).otherwise(found)
        return found

    def refusing(self, records: DataFrame, source: str, topic: str) -> DataFrame:
        """Return the records that fit; another one ends the query with a sentence."""
        texts = [F.col(CORRUPT_KEY_COLUMN)] if self._key else []
        texts += [F.col(CORRUPT)] if self._known else []
        texts += [self._corrupt_others()] if self._others else []
        misfit = self.misfit()
        does_not_fit = f"of the topic {topic} does not fit the schema of the source {source}: "
        no_key = f"a record of the topic {topic} has no key, and the source {source} is a table"
        what = F.when(misfit == NO_KEY, F.lit(no_key))
        what = what.when(misfit == BAD_KEY, F.lit(f"a key {does_not_fit}")).otherwise(F.lit(f"a value {does_not_fit}"))
        sentence = F.concat(
            what,
            F.coalesce(F.substring(F.coalesce(*texts), 1, QUOTED_LENGTH_MAX), F.lit("")),
            F.lit(" -- correct the schema, or give the source dead_letters, a topic for such records"),
        )
        fits = F.when(misfit.isNotNull(), F.raise_error(sentence).cast("boolean")).otherwise(F.lit(True))
        return records.where(fits)

    def _corrupt_others(self) -> Column:
        """Return the value where Spark's parser refuses it: an empty text it answers with null and no complaint."""
        text = F.col("value").cast("string")
        nothing = F.when(F.col(_OTHERS).isNull() & (F.trim(text) != "null"), text)
        return F.coalesce(F.col(_OTHERS).getField(CORRUPT), nothing)


def source_parses(schema: StructType) -> bool:
    """Return whether `valueSchema` can be this, without a column around it."""
    return all(field.name.lower() not in _TAKEN and is_known(field.dataType) for field in schema.fields)


def is_known(of: DataType) -> bool:
    """Return whether our source makes columns of this type."""
    if isinstance(of, ArrayType):
        return is_known(of.elementType)
    if isinstance(of, StructType):
        return bool(of.fields) and all(is_known(field.dataType) for field in of.fields)
    # CHAR and VARCHAR are strings with a length that only Spark looks at.
    return type(of) is StringType or isinstance(of, _PLAIN)


def ddl(fields: Sequence[StructField]) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in fields)
