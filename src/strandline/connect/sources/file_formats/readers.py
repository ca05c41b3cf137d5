"""The reader of a file, by the setting `format`."""

from __future__ import annotations

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.sources.file_formats.byte_source import ByteSource
from strandline.connect.sources.file_formats.format_config import FormatConfig, FormatReader


def reader_of(source: ByteSource, config: FormatConfig) -> FormatReader:
    """Return a reader for a file or object. Parquet needs the extra `objects`."""
    if config.format == "json":
        from strandline.connect.sources.file_formats.lines import JsonReader

        return JsonReader(source, config)
    if config.format == "csv":
        from strandline.connect.sources.file_formats.csv_rows import CsvReader

        return CsvReader(source, config)
    if config.format == "parquet":
        try:
            from strandline.connect.sources.file_formats.parquet_rows import ParquetReader
        except ModuleNotFoundError as error:
            raise InvalidConnectorConfig(
                f"format=parquet needs the package {error.name}: pip install 'strandline[objects]'"
            ) from None
        return ParquetReader(source, config)
    from strandline.connect.sources.file_formats.lines import LineReader

    return LineReader(source, config)
