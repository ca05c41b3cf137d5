"""Apache Kafka's command-line tools, pointed at one node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.clients.kafka_server import kafka_tool, tool_command

TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True)
class Tools:
    bootstrap: str
    logs: Path

    def run(self, name: str, *arguments: str | Path, stdin: str | None = None) -> str:
        """The output of a tool of Kafka's `tools` module; it must end with status 0."""
        return kafka_tool(
            f"{TOOLS}.{name}", "--bootstrap-server", self.bootstrap, *arguments, logs=self.logs, stdin=stdin
        )

    def run_verb(self, name: str, verb: str) -> str:
        """A tool whose options stand behind its verb."""
        return kafka_tool(f"{TOOLS}.{name}", verb, "--bootstrap-server", self.bootstrap, logs=self.logs)

    def refused(self, name: str, *arguments: str | Path) -> str:
        """What a tool says that must fail."""
        try:
            said = self.run(name, *arguments)
        except AssertionError as failure:
            return str(failure)
        raise AssertionError(f"{name} was not refused: {said}")

    def topics(self, *arguments: str) -> str:
        return self.run("TopicCommand", *arguments)

    def create(self, topic: str, partitions: int = 1) -> None:
        assert f"Created topic {topic}." in self.topics("--create", "--topic", topic, "--partitions", str(partitions))

    def configs(self, *arguments: str) -> str:
        """ConfigCommand, which stands outside the `tools` module."""
        command = ["--bootstrap-server", self.bootstrap, *arguments]
        return kafka_tool("kafka.admin.ConfigCommand", *command, logs=self.logs)

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[IO[str]]:
        """The output of a tool that runs until it is stopped."""
        command = tool_command(f"{TOOLS}.{name}", *arguments, logs=self.logs)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
            process.communicate()
