"""PostgreSQL's column types: the field and its values that Debezium makes of each of them.

A value comes as PostgreSQL's text, in a session that has `SESSION_SETTINGS`. What a column needs is decided once, in
`captured_column`; its `convert` then does only the work that a value needs.

Where Debezium fails or loses a value, this does better:

| column | Debezium 3.6.1 | here |
|---|---|---|
| `name` | null in the stream | the text |
| array with more than one dimension | an array of nulls | all elements in one array, row by row |
| NULL in an array of enums | the connector fails, since elements are required | null; elements are optional |
| `bit(n)[]` | null, and the schema is no array | an array of Bits |
| `time[]`, `timetz[]` | cut to milliseconds, to seconds | exact |
| `numeric(3,-2)` | scale 2046 | scale 0, the numbers are the same |
| dates before 1582 and infinity | other numbers in the snapshot than in the stream | those of the stream |
| `interval` infinity | 0 | the smallest or largest int64; `infinity` as a string |
| arrays of money, interval, xml, point, name, varbit | always left out | there with `include.unknown.datatypes` |
| unchanged TOAST value as base64 | null | the placeholder in base64 |
| unchanged TOAST value of a numeric, or of most arrays | fails | the placeholder's bytes as numbers |
| default with a quote in it | cut at the quote | whole |
"""

from strandline.cdc.postgres.types.catalog import PgType, TypeCatalog
from strandline.cdc.postgres.types.columns import captured_column
from strandline.cdc.postgres.types.settings import SESSION_SETTINGS, TypeSettings, session_options
from strandline.cdc.postgres.types.source_types import source_type
from strandline.cdc.postgres.types.texts import UnknownLabel

__all__ = [
    "SESSION_SETTINGS",
    "PgType",
    "TypeCatalog",
    "TypeSettings",
    "UnknownLabel",
    "captured_column",
    "session_options",
    "source_type",
]
