"""Asks Spark for the plan of a query, and for what its JSON leaves out: delays of watermarks, and Python code."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterator
from typing import Any, Final

from strandline.pipelines.changes.function_code import digest_of_function
from strandline.pipelines.changes.plan_form import PlanForm, form_of, short_digest
from strandline.pipelines.language.loading import modules_of
from strandline.pipelines.language.model import Pipeline, dead_letters_name
from strandline.pipelines.run.compiling import CompiledQuery
from strandline.pipelines.versions.state import unversioned

FORMAT: Final = 1
"""Of forms: raised when the same file gets another form than before."""

_FUNCTIONS: Final = ("PythonUDF", "PythonUDAF")


def made_with() -> str:
    """Return what a form depends on beside the file: only those that were made with the same can be compared."""
    import pyspark

    return f"{FORMAT}, Spark {pyspark.__version__}, Python {'.'.join(platform.python_version_tuple()[:2])}"


def form_of_query(compiled: CompiledQuery, pipeline: Pipeline) -> PlanForm:
    if compiled.rows is None:
        schemas = {dead_letters_name(each.name): each.schema for each in pipeline.sources.values()}
        return PlanForm(digest=short_digest(str(schemas[compiled.name])))
    plan = compiled.rows._jdf.queryExecution().analyzed()
    nodes = list(_below(plan))
    told = json.loads(plan.toJSON())
    for node, fields in zip(nodes, told, strict=True):
        fields.update(_left_out(node))
    own = {each.__name__ for each in modules_of(pipeline)}
    functions = _functions(nodes, own) if any(each in json.dumps(told) for each in _FUNCTIONS) else {}
    labels = {name: unversioned(topic) for name, topic in compiled.inputs.items()}
    return form_of(told, labels, functions)


def _left_out(node: Any) -> dict[str, Any]:
    """Return what the JSON of a plan has as null."""
    name = str(node.nodeName())
    if name == "EventTimeWatermark":
        return {"delay": str(node.delay().toString())}
    if name == "Expand":
        return {"projections": [[json.loads(each.toJSON()) for each in _all(row)] for row in _all(node.projections())]}
    return {}


def _all(of: Any) -> Iterator[Any]:
    return (of.apply(at) for at in range(of.size()))


def _below(node: Any) -> Iterator[Any]:
    yield node
    for each in _all(node.children()):
        yield from _below(each)


def _functions(nodes: list[Any], own: Collection[str]) -> dict[int, str]:
    """Return digests of the Python functions, by their ids in the plan."""
    found = {}
    for node in nodes:
        for each in (one for top in _all(node.expressions()) for one in _below(top)):
            if str(each.getClass().getSimpleName()) in _FUNCTIONS:
                found[int(each.resultId().id())] = _digest(each, own)
    return found


def _digest(function: Any, own: Collection[str]) -> str:
    from pyspark.errors import PySparkException
    from pyspark.serializers import CPickleSerializer

    # A function of more than a megabyte is sent another way, and counts by its name alone.
    try:
        command = CPickleSerializer().loads(bytes(function.func().command().unsafeArray()))  # type: ignore[no-untyped-call]
    except (PySparkException, AttributeError, KeyError):
        return "not read"
    return digest_of_function(command[0] if isinstance(command, tuple) else command, own)
