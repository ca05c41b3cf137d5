"""Which JSON values our source makes columns of by itself, and how Spark does it where it cannot.

The source's option `valueSchema` parses whole batches with Arrow, for a half to a third of the CPU time that Spark's
own from_json takes, and takes nothing that is not exactly as the schema says. It does not know every type, and its
columns must not be named like those of a record. For such schemas from_json is used, which is more lenient: it reads
numbers as texts, and does not look at what stands behind the end of an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from strandline.spark.source.wanted import COLUMNS, CORRUPT_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
)
_TAKEN: Final = frozenset(name.lower() for name in (*COLUMNS, CORRUPT))
QUOTED_LENGTH_MAX: Final = 200
"""Of a value that does not fit, in the sentence that says so."""


def source_parses(schema: StructType) -> bool:
    """Whether `valueSchema` can be this."""
    return all(field.name.lower() not in _TAKEN and _is_known(field.dataType) for field in schema.fields)


def _is_known(of: DataType) -> bool:
    if isinstance(of, ArrayType):
        return _is_known(of.elementType)
    if isinstance(of, StructType):
        return bool(of.fields) and all(_is_known(field.dataType) for field in of.fields)
    # CHAR and VARCHAR are strings with a length that only Spark looks at.
    return type(of) is StringType or isinstance(of, _PLAIN)


def ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema.fields)


def refusing(frame: DataFrame, source: str, topic: str) -> DataFrame:
    """The frame without `_corrupt`; a row in which it is filled ends the query with a sentence."""
    sentence = F.concat(
        F.lit(f"a value of the topic {topic} does not fit the schema of the source {source}: "),
        F.substring(F.col(CORRUPT), 1, QUOTED_LENGTH_MAX),
        F.lit(" -- correct the schema, or give the source dead_letters, a topic for such records"),
    )
    fits = F.when(F.col(CORRUPT).isNotNull(), F.raise_error(sentence).cast("boolean")).otherwise(F.lit(True))
    return frame.where(fits).drop(CORRUPT)
