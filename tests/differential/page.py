"""The page docs/differences.md, made from the table of differences.

python -m tests.differential.page > docs/differences.md
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from bench.kafka_jars import KAFKA_VERSION
from tests.differential.cases import CASES
from tests.differential.differences import DIFFERENCES, GENERAL, Difference
from tests.differential.rights_cases import CASES as RIGHTS_CASES
from tests.differential.rights_differences import RIGHTS_DIFFERENCES

_HEAD = f"""\
# Where Apache Kafka answers something else

`tests/differential` puts {len(CASES):,} questions to a node and compares the answers with those of Apache Kafka
{KAFKA_VERSION}: every API in every version, with sound, odd and impossible values. Compared are error codes at every
level, whether the connection is closed, null and empty, offsets, throttle times and all other fields; ids, ports and
times are not. Kafka's answers are kept in `tests/differential/recorded`, so `make test` compares without Java;
`make test-all` also asks a running Kafka whether the recording still holds.

This page is made from the table in `tests/differential/differences.py`: a difference that is not listed fails the test,
and so does a listed one that is none any more. Everything else is answered alike.

## Of a general kind

"""

_BETWEEN = """
## Case by case

`*` stands for any version, or for any ending. `ok` means no error; `hangs` that no answer comes within six seconds.

| question | cases | we say | Kafka says | why |
|---|---|---|---|---|
"""

_RIGHTS = f"""
## With access rules

{len(RIGHTS_CASES):,} more questions come from clients that log in: a super user, one that ACLs allow everything, one
without ACLs, one denied by a prefix, one denied by its host, and four with a part of the rights. Every API but those of
share groups is asked in every version, about resources that exist, that do not, and both. The answers differ in this:

| question | we say | Kafka says | why |
|---|---|---|---|
"""

_TAIL = """
Limits that Apache Kafka does not have (elements and tagged fields of one request, connections) are on the page of
[limits](limits.md); settings that are refused or have no effect on the page of [settings](configuration.md).
"""


def page() -> str:
    general = "".join(f"- {reason}\n" for reason in GENERAL.values())
    rows = "".join(_row(each) for each in DIFFERENCES)
    rights = "".join(_rights_row(each) for each in RIGHTS_DIFFERENCES)
    return _HEAD + general + _BETWEEN + rows + _RIGHTS + rights + _TAIL


def _row(each: Difference) -> str:
    count = sum(fnmatchcase(case.name, each.cases) for case in CASES)
    question, ours, theirs = (_cell(text) for text in (each.cases, each.ours, each.theirs))
    return f"| `{question}` | {count} | `{ours}` | `{theirs}` | {each.reason} |\n"


def _rights_row(each: Difference) -> str:
    question, ours, theirs = (_cell(text) for text in (each.cases, each.ours, each.theirs))
    return f"| `{question}` | `{ours}` | `{theirs}` | {each.reason} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
