"""What is wrong with a pipeline, in one sentence that says where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from strandline.errors import StrandlineError
from strandline.pipelines.language.model import Place
from strandline.spark.error_translation import SparkFailed


class PipelineRefused(SparkFailed, StrandlineError):
    """The file says something that cannot be run; nothing was started or written."""


def refused(sentence: str, at: Place | None = None) -> PipelineRefused:
    return PipelineRefused(sentence if at is None else f"{at}: {sentence}")


def guess(name: str, names: Iterable[str]) -> str:
    """`, did you mean x?` if a name looks like one of these."""
    near = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f" (did you mean {near[0]}?)" if near else ""
