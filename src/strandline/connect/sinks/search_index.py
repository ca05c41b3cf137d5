"""Documents of a full-text index, and how they are found: what SearchSink writes, and `search` reads.

_kind      `record`, or `position` for a document that holds an offset
_id        the id of a record's document
_source    the value, as JSON
_position  connector, topic and partition; `_next` is the offset behind what the index has of it
<name>     a text field
attributes everything else of the value, by path: `attributes.price:[5 TO 9]`
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import tantivy

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.runtime.fault_points import fault_point

ATTRIBUTES: Final = "attributes"
RECORD: Final = "record"
POSITION: Final = "position"
WRITER_BYTES_MIN: Final = 15_000_000

_MANAGED: Final = ".managed.json"
"""The files that tantivy may remove when an index does not need them any more."""
_OLD: Final = ".old-"
"""Indexes that were replaced are `<path>.old-<number>`."""


class SearchHit(NamedTuple):
    """A document that a query found."""

    id: str
    score: float
    value: Any
    """None if the index was made with `stored=false`."""


def search(index_path: str | Path, query: str, limit: int = 10) -> list[SearchHit]:
    """Return the documents of an index that a query finds, the best ones first.

    The query has tantivy's language: `river AND title:"old bridge" AND attributes.price:[5 TO 9]`. Raise ValueError if
    it cannot be parsed, ConnectFailed if there is no index.
    """
    index = opened(Path(index_path))
    is_record = tantivy.Query.const_score_query(tantivy.Query.term_query(index.schema, "_kind", RECORD), 0.0)
    asked = index.parse_query(query, text_fields(Path(index_path)))
    both = tantivy.Query.boolean_query([(tantivy.Occur.Must, asked), (tantivy.Occur.Must, is_record)])
    searcher = index.searcher()
    return [_hit(score, searcher.doc(address)) for score, address in searcher.search(both, limit).hits]


def opened(path: Path) -> tantivy.Index:
    """Open an index. Raise ConnectFailed if there is none."""
    try:
        return tantivy.Index.open(str(path))
    except ValueError as error:
        raise ConnectFailed(f"{path} holds no index that can be opened: {error}") from None


def created(path: Path, fields: tuple[str, ...]) -> tantivy.Index:
    """Make an index with these text fields."""
    builder = tantivy.SchemaBuilder()
    for name in ("_kind", "_id", "_position"):
        # One term for the whole text, because documents are found and deleted by it.
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("_next", stored=True)
    builder.add_bytes_field("_source", stored=True)
    builder.add_json_field(ATTRIBUTES, fast=True)
    for name in fields:
        builder.add_text_field(name)
    try:
        path.mkdir(parents=True, exist_ok=True)
        return tantivy.Index(builder.build(), str(path))
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"an index cannot be made in {path}: {error}") from None


def locked(index: tantivy.Index, path: Path, memory_bytes: int = WRITER_BYTES_MIN) -> tantivy.IndexWriter:
    """Become the writer of an index. Raise RetriableFailure while there is another one."""
    try:
        return index.writer(memory_bytes, 1)
    except ValueError as error:
        if "LockBusy" not in str(error):
            raise RetriableFailure(f"the index in {path} cannot be written: {error}") from None
        raise RetriableFailure(
            f"another task or process writes the index in {path}, and only one may: stop it, or use another index.path"
        ) from None


def replace_index(path: Path, fresh: Path) -> None:
    """Put an index in the place of another one, in one step, and remove its own directory.

    `meta.json` names the files of an index, and they have names of their own. So the files of the fresh one are added
    to the directory, and then its `meta.json` replaces the other. What is not named is removed by the next writer; the
    old index has links to its files in a directory of its own.
    """
    if not (path / "meta.json").exists():
        try:
            fresh.rename(path)
        except OSError as error:
            raise ConnectFailed(f"{fresh} cannot become {path}: {error}") from None
        return
    writer = locked(opened(path), path)
    managed = [set(json.loads((each / _MANAGED).read_bytes())) for each in (path, fresh)]
    _keep(path, managed[0])
    fault_point("switch-copied")
    _link(fresh, path, managed[1])
    _write(path / _MANAGED, json.dumps(sorted(managed[0] | managed[1])).encode())
    fault_point("switch-copy-named")
    _write(path / "meta.json", (fresh / "meta.json").read_bytes())
    fault_point("switch-committed")
    del writer
    shutil.rmtree(fresh, ignore_errors=True)


def old_indexes(path: Path) -> list[Path]:
    """Return the directories of indexes that were replaced."""
    start = f"{path.name}{_OLD}"
    return [
        each
        for each in (path.parent.iterdir() if path.parent.is_dir() else ())
        if each.name.startswith(start) and each.name.removeprefix(start).isdigit() and each.is_dir()
    ]


def _keep(path: Path, names: set[str]) -> None:
    """Make an index of the same files beside an index."""
    taken = [int(each.name.removeprefix(f"{path.name}{_OLD}")) for each in old_indexes(path)]
    old = path.with_name(f"{path.name}{_OLD}{max(taken, default=0) + 1}")
    try:
        old.mkdir()
    except OSError as error:
        raise ConnectFailed(f"the old index cannot be kept in {old}: {error}") from None
    _link(path, old, names)
    # Last, because it makes the directory an index.
    for name in (_MANAGED, "meta.json"):
        _write(old / name, (path / name).read_bytes())


def _link(source: Path, target: Path, names: set[str]) -> None:
    for name in names - {"meta.json"}:
        if (source / name).exists() and not (target / name).exists():
            try:
                os.link(source / name, target / name)
            except OSError as error:
                raise ConnectFailed(f"the file {name} of {source} cannot be linked to {target}: {error}") from None


def text_fields(path: Path) -> list[str]:
    """Return the text fields of an index, from the description that it has of itself."""
    try:
        described = json.loads((path / "meta.json").read_bytes())["schema"]
        return [each["name"] for each in described if each["type"] == "text" and is_text_field(each["name"])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConnectFailed(f"the description of the index in {path} cannot be read: {error}") from None


def is_text_field(name: str) -> bool:
    """Return whether a field of a value may be a field of the index: names of the index itself may not."""
    return not name.startswith("_") and name != ATTRIBUTES and tantivy.SchemaBuilder.is_valid_field_name(name)


def stored_position(searcher: tantivy.Searcher, schema: tantivy.Schema, name: str) -> int | None:
    """Return the offset that an index has for a partition; None if it has none."""
    found = searcher.search(tantivy.Query.term_query(schema, "_position", name), 1).hits
    return int(searcher.doc(found[0][1])["_next"][0]) if found else None


def stored_sources(searcher: tantivy.Searcher, schema: tantivy.Schema, name: str) -> list[bytes]:
    """Return the values of the documents that have an id; more than one would be a mistake."""
    found = searcher.search(tantivy.Query.term_query(schema, "_id", name), 2).hits
    return [searcher.doc(address).get_first("_source") or b"null" for _, address in found]


def all_sources(searcher: tantivy.Searcher, schema: tantivy.Schema) -> Iterator[tuple[str, bytes]]:
    """Yield the id and the value of every document."""
    everything = searcher.search(tantivy.Query.term_query(schema, "_kind", RECORD), max(1, searcher.num_docs)).hits
    for _, address in everything:
        document = searcher.doc(address)
        yield document["_id"][0], document.get_first("_source") or b"null"


def source_digest(sources: Sequence[bytes]) -> bytes:
    """Return a digest of values that is the same for the same JSON."""
    plain = [json.dumps(json.loads(each), sort_keys=True, separators=(",", ":")) for each in sources]
    return sha256("\n".join(plain).encode()).digest()


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, on disk."""
    written = path.with_name(f"{path.name}.new")
    with written.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    written.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _hit(score: float, document: tantivy.Document) -> SearchHit:
    source = document.get_first("_source")
    return SearchHit(document["_id"][0], score, None if source is None else json.loads(source))
