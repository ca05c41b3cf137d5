"""The one decoder: record batch bytes to columns, for `consume`, `log dump`, time look-up, Spark and the cleaner.

`decode_batch` checks a batch strictly and yields `Columns`: offsets, timestamps, and the place of each key, value and
header block in the payload. It makes no object per record until `records()` is called. `scan_batches` does the same
for many plain batches at once. `encode_batch` is the reverse, for internal topics, the library and tests. The hot loops
are in `_scan`, compiled if the wheel has it and plain Python elsewhere; `decoder_name` says which. A leader rejects
what the decoder would reject, before it is stored (`_check`). docs/formats/record-batch.md draws the bytes.
"""

from strandline.codec.columns._scan import locate_headers, scan_batches
from strandline.codec.columns.batch import Columns, Record
from strandline.codec.columns.decode import columns_of, decode_batch, decoder_name, records_of
from strandline.codec.columns.encode import batch_of_slices, encode_batch, encode_record, encode_values
from strandline.codec.compression import Compression
from strandline.codec.record_batch import BatchHeader

__all__ = [
    "BatchHeader",
    "Columns",
    "Compression",
    "Record",
    "batch_of_slices",
    "columns_of",
    "decode_batch",
    "decoder_name",
    "encode_batch",
    "encode_record",
    "encode_values",
    "locate_headers",
    "records_of",
    "scan_batches",
]
