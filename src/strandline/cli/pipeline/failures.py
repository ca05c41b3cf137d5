"""How the commands about pipelines fail: whatever Spark, the cluster or the file did, one sentence and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound, from_kafka_error


@contextmanager
def plain_failures(*, verbose: bool = False, bootstrap: str = "the cluster") -> Iterator[None]:
    """Turn what the block raises into a `CommandFailed`; `verbose` prints the whole trace before."""
    try:
        yield
    except CommandFailed:
        raise
    except Exception as error:
        failure = failure_of(error, bootstrap)
        if failure is None:
            raise
        if verbose:
            traceback.print_exception(error, file=sys.stderr)
        raise failure from None


def failure_of(error: Exception, bootstrap: str) -> CommandFailed | None:
    """Return the error as a failure for the user; None for a bug of ours, which is raised as it is."""
    from confluent_kafka import KafkaException

    from strandline.client.failures import ClientFailed
    from strandline.errors import StrandlineError, WorldError
    from strandline.spark.error_translation import explain_failure, is_of_spark

    if isinstance(error, KafkaException):
        return from_kafka_error(error.args[0], bootstrap=bootstrap, doing="the cluster did not do it")
    if isinstance(error, WorldError):
        return CommandFailed(str(error), code=ExitCode.UNREACHABLE)
    if isinstance(error, ClientFailed | StrandlineError):
        return CommandFailed(str(error))
    if is_of_spark(error):
        return CommandFailed(explain_failure(error))
    return None


def check_file(file: str) -> None:
    if not Path(file).exists():
        raise NotFound(f"there is no file {file}", hint="name the pipeline's .py or .sql file")
