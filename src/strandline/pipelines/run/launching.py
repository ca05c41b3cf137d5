"""A pipeline from nothing to Spark: the node and the file at the same time, then Java, each shown with its seconds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from strandline.pipelines.run.local_node import HOME, Ground, checkpoints_of, find_ground
from strandline.pipelines.run.stages import Stages, in_background
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.error_translation import SparkFailed
from strandline.spark.lost_java import is_java_gone, keep_py4j_quiet
from strandline.spark.masters import check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.pipelines.language.model import Pipeline

LOOK_S: Final = 0.05
_OTHER_FILES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
"""What may name a default file system that is not this machine's."""
CLOSE_S: Final = 1.0
"""How long the end waits for what only frees memory."""


@dataclass(frozen=True)
class RunPlace:
    """The cluster, the Spark and the directories of a run, as the user says them."""

    bootstrap: str | None = None
    """None: a node of its own."""
    master: str | None = None
    """None: this machine."""
    checkpoints: str | None = None
    """None: in `home`, by the id of the cluster."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of Spark."""
    home: Path = HOME
    verbose: bool = False


class Launch:
    """The node, the file and Spark of a run. Making it starts the node and loads the file; `close` ends all of it."""

    def __init__(self, place: RunPlace, stages: Stages, *, name: str, file: str | None = None) -> None:
        self.place = place
        self.stages = stages
        self._name = name
        self._spark: SparkSession | None = None
        self._registry: Registry | None = None
        self._session_ended = threading.Event()
        if not place.verbose:
            keep_py4j_quiet()
        if place.master is not None:
            # Before anything is started or made for one that does not answer.
            check_master(place.master, os.environ)
        self.ground: Ground = find_ground(place.bootstrap, home=place.home)
        self._node_is_ready = in_background(self._await_node, "node")
        try:
            # Imported here and not by two threads at once, which may see each other's half of a package.
            with stages.stage("PySpark"):
                _import_spark()
            self.pipeline: Pipeline | None = None if file is None else self.load(file)
        except BaseException:
            self.close()
            raise
        self._spark_is_ready: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # Interrupted, maybe in the middle of a call to Java, whose answer the next call would take for its own.
            # Java ends when its input does, which is when this process ends.
            self._spark = None
        self.close()

    def load(self, file: str) -> Pipeline:
        """Return the pipeline in a file. What it reads of other pipelines is only known to the cluster."""
        from strandline.pipelines.language.loading import load

        with self.stages.stage("file") as stage:
            pipeline = load(file, known=None)
            stage.detail = f"{file}: {', '.join(each.name for each in pipeline.written)}"
            return pipeline

    def registry(self) -> Registry:
        self._node_is_ready()
        if self._registry is None:
            self._registry = Registry(self.ground.bootstrap)
        return self._registry

    def checkpoints(self) -> str:
        """Return where checkpoints lie: an absolute path, or the address of a file system that Spark knows."""
        said = self.place.checkpoints
        if said is None:
            return checkpoints_of(self.ground.bootstrap, home=self.place.home)
        return said if "://" in said else str(Path(said).resolve())

    @property
    def files_are_here(self) -> bool:
        """Return whether Spark takes a path without a scheme for one of this machine, as far as its settings tell."""
        is_said = any("fs.default" in name for name in self.place.settings)
        return not is_said and not any(name in os.environ for name in _OTHER_FILES)

    def begin_spark(self) -> None:
        """Start Java in the background: all that can be refused without it has been checked."""
        if self._spark_is_ready is None:
            in_background(self._watch_java, "java")
            self._spark_is_ready = in_background(self._start_spark, "spark")

    def spark(self) -> SparkSession:
        self.begin_spark()
        assert self._spark_is_ready is not None
        self._spark_is_ready()
        assert self._spark is not None
        return self._spark

    def close(self) -> None:
        try:
            if self._spark is not None and not is_java_gone():
                from strandline.spark.error_translation import plainly
                from strandline.spark.positions import settle

                with plainly():
                    settle(self._spark)
                    self._spark.stop()
        finally:
            if self._registry is not None:
                # Bounded, because closing waits for requests, also to a cluster that does not answer.
                closing = threading.Thread(target=self._registry.close, name="registry-close", daemon=True)
                closing.start()
                closing.join(CLOSE_S)
            self.ground.close()

    def _await_node(self) -> None:
        with self.stages.stage("node") as stage:
            bootstrap = self.ground.wait_ready()
            where = f", its data in {self.ground.home / 'node'}" if self.ground.is_own else ""
            stage.detail = f"{bootstrap}{where}"

    def _start_spark(self) -> None:
        from strandline.spark.sessions import session

        try:
            settings: dict[str, Any] = dict(self.place.settings)
            self._spark = session(
                f"pipeline {self._name}", master=self.place.master, verbose=self.place.verbose, **settings
            )
        finally:
            self._session_ended.set()

    def _watch_java(self) -> None:
        from pyspark import SparkContext

        from strandline.spark.class_archive import advice

        with self.stages.stage("Java") as stage:
            # PySpark notes the process when it has answered.
            while SparkContext._gateway is None and not self._session_ended.wait(LOOK_S):
                pass
            if SparkContext._gateway is None:
                raise SparkFailed("Java did not start")
            stage.detail = advice(os.environ)
        with self.stages.stage("Spark") as stage:
            self._session_ended.wait()
            if self._spark is None:
                raise SparkFailed("Spark did not start")
            stage.detail = str(self._spark.sparkContext.master)


def _import_spark() -> None:
    try:
        import pyspark.sql.streaming.listener  # noqa: F401
    except ImportError as error:
        raise SparkFailed(f"PySpark is not installed ({error}): `pip install 'strandline[spark]'`") from error
