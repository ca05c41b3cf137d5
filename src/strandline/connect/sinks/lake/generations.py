"""Generations of a connector's objects: a rebuild writes the next one, and one small object says which counts.

    topics/_strandline/<connector>/current.json     {"generation": 1, "topics.dir": "topics.<connector>.1"}

A store cannot rename a directory, but it replaces an object in one step. Without that object the generation is 0, and
its directory is `topics.dir` itself. Readers ask it first; the sink does so when it starts, and before each object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import obstore
from obstore import exceptions as store_errors
from obstore.store import ObjectStore

from strandline.connect.failures import ConnectFailed
from strandline.connect.object_store import STORE_ERRORS, store_failure
from strandline.connect.sinks.lake.paths import segment
from strandline.connect.sinks.own_topics import is_own_topic

CONTROL_FOLDER: Final = "_strandline"
"""Readers like Spark and Athena skip names that begin with an underscore."""
_OBJECT: Final = re.compile(
    r"(?P<place>.*?(?P<topic>[^/+]+)\+\d+)\+\d{20}\.(?:parquet|json|json\.gz|json\.zst)", re.DOTALL
)


class FoundObject(NamedTuple):
    """An object of a connector."""

    path: str
    place: str
    """Its directory below that of the generation, with topic and partition."""
    version: tuple[Any, ...]
    """Another one when it was replaced."""


class ObjectGenerations:
    """Objects in one store, of one connector."""

    def __init__(self, store: ObjectStore, topics_dir: str, properties: Mapping[str, str]) -> None:
        self._store = store
        self._topics_dir = topics_dir
        self._properties = properties
        self._connector = segment(properties.get("name") or "sink")

    def directory(self, generation: int) -> str:
        """Return the directory of all topics of a generation."""
        return f"{self._topics_dir}.{self._connector}.{generation}".lstrip("./") if generation else self._topics_dir

    def control_path(self, directory: str, name: str) -> str:
        """Return the path of an object of the sink's own."""
        return f"{directory}/{CONTROL_FOLDER}/{self._connector}/{name}".lstrip("/")

    def current(self) -> int:
        """Return the generation that counts."""
        found = self.read_json(self._pointer)
        return 0 if found is None else int(found["generation"])

    def point_at(self, generation: int) -> None:
        """Have a generation count from now on."""
        said = {"generation": generation, "topics.dir": self.directory(generation)}
        self.put(self._pointer, json.dumps(said).encode())

    def objects(self, generation: int) -> Iterator[FoundObject]:
        """Yield the objects of the connector's topics."""
        directory = self.directory(generation)
        prefix = f"{directory}/".lstrip("/")
        try:
            for part in obstore.list(self._store, prefix=prefix):
                for each in part:
                    path = each["path"]
                    match = _OBJECT.fullmatch(path.removeprefix(prefix))
                    if match is not None and is_own_topic(match["topic"], self._properties):
                        version = each["e_tag"], each["last_modified"], each["size"]
                        yield FoundObject(path, match["place"], version)
        except STORE_ERRORS as error:
            raise store_failure(error, f"the objects below {directory} were not listed") from None

    def remove(self, generation: int) -> None:
        """Delete the objects of a generation, and its offsets."""
        paths = [each.path for each in self.objects(generation)]
        if generation:
            folder = self.control_path(self.directory(generation), "")
            paths += [each["path"] for part in obstore.list(self._store, prefix=folder) for each in part]
        try:
            for at in range(0, len(paths), 1000):
                obstore.delete(self._store, paths[at : at + 1000])
        except STORE_ERRORS as error:
            raise store_failure(error, "objects were not deleted") from None

    def put(self, path: str, content: Any) -> None:
        """Write or replace an object."""
        try:
            obstore.put(self._store, path, content)
        except STORE_ERRORS as error:
            raise store_failure(error, f"the object {path} was not written") from None

    def read(self, path: str) -> bytes | None:
        """Return what an object holds; None if it is not there."""
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None
        except (store_errors.BaseError, OSError) as error:
            raise store_failure(error, f"the object {path} was not read") from None

    def read_json(self, path: str) -> Any:
        """Return what an object of the sink's own says; None if it is not there."""
        content = self.read(path)
        try:
            found = None if content is None else json.loads(content)
            if not isinstance(found, dict | None):
                raise TypeError("it is no JSON object")
        except (TypeError, ValueError) as error:
            raise ConnectFailed(f"the object {path} is damaged: {error}") from None
        return found

    @property
    def _pointer(self) -> str:
        return self.control_path(self._topics_dir, "current.json")
