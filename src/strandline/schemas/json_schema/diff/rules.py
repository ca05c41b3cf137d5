"""The form of a rule: a generator that yields pairs of inner nodes and is sent the differences of each.

A comparison keeps the rules that wait in a list. So its depth is bounded by a number and not by the stack: definitions
that refer to one another nest far deeper than the text does.
"""

from __future__ import annotations

from collections.abc import Generator

from strandline.schemas.json_schema.diff.kinds import Differences
from strandline.schemas.json_schema.nodes import SchemaNode

Pair = tuple[SchemaNode | None, SchemaNode | None]
Rule = Generator[Pair, Differences, Differences]
