"""The schemas of a registry that a plan reads and writes by: each is chosen once for all its queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.client.cluster_client import ClientSettings
from strandline.pipelines.failures import refused
from strandline.pipelines.language.graph import sources_of
from strandline.pipelines.language.model import Dataset, Pipeline, SourceTopic, dead_letters_name
from strandline.spark.error_translation import SparkFailed

if TYPE_CHECKING:
    from strandline.spark.registry.reader_schema import ReaderSchema


class SourceSchemas:
    """The newest version of each subject, as of its first use. Most plans have none, so modules are imported late."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = ClientSettings(bootstrap)
        self._chosen: dict[str, ReaderSchema] = {}

    def of(self, each: SourceTopic | Dataset) -> ReaderSchema | None:
        """Return what a source is read by, or a dataset written; None if it is no registry's. Raise PipelineRefused."""
        if not each.is_of_registry:
            return None
        from strandline.spark.registry.choosing import newest_version

        if each.subject not in self._chosen:
            try:
                self._chosen[each.subject] = newest_version(self._settings, each.subject)
            except SparkFailed as error:
                raise refused(f"{each.name} has no schema: {error}", each.at) from error
        return self._chosen[each.subject]

    def ddl(self, source: SourceTopic) -> str:
        """Return the columns of a source, in Spark's words."""
        reader = self.of(source)
        if reader is None:
            assert source.schema is not None
            return source.schema
        from strandline.spark.source.columns import reader_ddl

        try:
            return reader_ddl(reader)
        except SparkFailed as error:
            raise refused(f"the source {source.name} can not be read: {error}", source.at) from error

    def words(self, sources: Iterable[SourceTopic]) -> tuple[str, ...]:
        """Return which version each of the sources is read by, for those of a registry."""
        found = ((each.name, self.of(each)) for each in sources)
        return tuple(f"{name}: {reader.words}" for name, reader in found if reader is not None)


def schemas_by_query(pipeline: Pipeline, bootstrap: str) -> dict[str, tuple[str, ...]]:
    """Return by which versions each query of a pipeline would read now, in words."""
    schemas = SourceSchemas(bootstrap)
    found = {dead_letters_name(each.name): schemas.words([each]) for each in pipeline.sources.values()}
    return found | {each.name: schemas.words(sources_of(pipeline, each)) for each in pipeline.written}
