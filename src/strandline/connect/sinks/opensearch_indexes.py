"""Indexes of OpenSearch or Elasticsearch as targets: their documents, fresh ones beside them, and the alias that moves.

Readers and the sink name an index by `orders`. A rebuild writes `orders__rebuild_1`, and makes `orders` an alias of it.
The next one writes `orders__rebuild_2`. An index that was no alias is cloned to `orders__rebuild_0` before, because the
server can replace it by an alias in one step only if it is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sinks.http_client import HttpClient
from strandline.connect.sinks.verifiable import TargetKey

_NOT_FOUND: Final = 404
_PAGE: Final = 500
_SCROLL: Final = "5m"
_COPIED: Final = ("number_of_shards", "number_of_replicas", "analysis")
"""Settings that a fresh index has from the old one."""
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}


class IndexInUse(NamedTuple):
    """The index that a name stands for."""

    name: str
    holder: str
    mappings: Mapping[str, Any]
    settings: Mapping[str, Any]


class OpenSearchIndexes:
    """Asks one server."""

    def __init__(self, client: HttpClient, base: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._base = base
        self._headers = {name: each for name, each in headers.items() if name == "Authorization"} | _JSON

    def find(self, name: str) -> IndexInUse | None:
        """Return the index that a name or alias stands for; None if there is none."""
        found = self._ask("GET", f"/{_quoted(name)}")
        if found is None:
            return None
        if len(found) != 1:
            raise ConnectFailed(f"{name} is an alias of several indexes ({', '.join(sorted(found))})")
        ((index, about),) = found.items()
        return IndexInUse(name, index, about["mappings"], about["settings"]["index"])

    def create(self, name: str, like: IndexInUse | None) -> None:
        """Create an index with the mapping of another, unless it is there."""
        if self.find(name) is not None:
            return
        settings = {} if like is None else {each: like.settings[each] for each in _COPIED if each in like.settings}
        body = {"mappings": {} if like is None else like.mappings, "settings": {"index": settings}}
        self._ask("PUT", f"/{_quoted(name)}", body)

    def delete(self, name: str) -> None:
        """Delete an index, if it is there."""
        self._ask("DELETE", f"/{_quoted(name)}")

    def matching(self, pattern: str) -> Sequence[str]:
        """Return the names of indexes, by a pattern with `*`."""
        return sorted(self._ask("GET", f"/{quote(pattern, safe='*')}/_alias") or {})

    def block_writes(self, index: str, *, is_blocked: bool) -> None:
        """Have the server refuse writes to an index for a while, or take them again."""
        self._ask("PUT", f"/{_quoted(index)}/_settings", {"index.blocks.write": is_blocked})

    def clone(self, index: str, name: str) -> None:
        """Copy an index that takes no writes, by hard links where the file system has them."""
        # One that is there is of a swap that was interrupted, and the index may have changed since.
        self.delete(name)
        self._ask("PUT", f"/{_quoted(index)}/_clone/{_quoted(name)}", {})
        self._ask("GET", f"/_cluster/health/{_quoted(name)}?wait_for_status=yellow&timeout=60s")

    def move_aliases(self, moved: Sequence[tuple[IndexInUse | None, str, str]]) -> None:
        """Have each name stand for another index, all in one step. An index that has the name itself is removed."""
        actions: list[Mapping[str, Any]] = []
        for current, name, index in moved:
            self._ask("POST", f"/{_quoted(index)}/_refresh")
            if current is not None and current.holder == name:
                actions.append({"remove_index": {"index": name}})
            elif current is not None:
                actions.append({"remove": {"index": current.holder, "alias": name}})
            actions.append({"add": {"index": index, "alias": name}})
        self._ask("POST", "/_aliases", {"actions": actions})

    def digests(self, keys: Sequence[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digests of the documents that exist, of these."""
        found: dict[TargetKey, bytes] = {}
        for at in range(0, len(keys), _PAGE):
            found |= self._some(keys[at : at + _PAGE])
        return found

    def documents(self, name: str) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield key and digest of every document of an index, as it is when this begins."""
        if self._ask("POST", f"/{_quoted(name)}/_refresh") is None:
            return
        asked = {"size": _PAGE, "sort": ["_doc"]}
        page = self._ask("POST", f"/{_quoted(name)}/_search?scroll={_SCROLL}", asked)
        try:
            while page["hits"]["hits"]:
                for each in page["hits"]["hits"]:
                    yield TargetKey(name, (each["_id"],)), document_digest(each["_source"])
                page = self._ask("POST", "/_search/scroll", {"scroll": _SCROLL, "scroll_id": page["_scroll_id"]})
                if page is None:
                    raise RetriableFailure(f"{self._client.origin} has ended the reading of {name}")
        finally:
            if page is not None:
                self._ask("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]})

    def _some(self, keys: Sequence[TargetKey]) -> dict[TargetKey, bytes]:
        asked = [{"_index": each.place, "_id": each.key[0]} for each in keys]
        try:
            answer = self._ask("POST", "/_mget", {"docs": asked})
        except ValueError:
            # The documents of one answer are too large.
            if len(keys) == 1:
                raise ConnectFailed(f"the document {keys[0].key[0]} of {keys[0].place} is too large to read") from None
            middle = len(keys) // 2
            return self._some(keys[:middle]) | self._some(keys[middle:])
        found = zip(keys, (answer or {"docs": []})["docs"], strict=True)
        return {key: document_digest(each["_source"]) for key, each in found if each.get("found")}

    def _ask(self, method: str, target: str, body: Any = None) -> Any:
        """Return the answer; None for 404. Raise ValueError if it is cut off."""
        data = None if body is None else json.dumps(body).encode()
        answer = self._client.request(method, self._base + target, data, self._headers)
        if answer.status == _NOT_FOUND:
            return None
        if not answer.is_success:
            kind = RetriableFailure if answer.is_retriable else ConnectFailed
            said = f"{self._client.origin} answered {method} {target} with status {answer.status}: {answer.excerpt}"
            raise kind(said)
        return json.loads(answer.body)


def document_digest(source: Any) -> bytes:
    """Return a digest of a document, whatever the order of its fields."""
    text = json.dumps(source, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).digest()


def generation(index: str, name: str, suffix: str) -> int:
    """Return the number of an index that was swapped in under a name; 0 if it never was."""
    match = re.fullmatch(rf"{re.escape(name)}__{re.escape(suffix)}_(\d+)", index)
    return 0 if match is None else int(match[1])


def generations(indexes: Collection[str], name_expression: str, suffix: str) -> Iterator[tuple[str, str, int]]:
    """Yield the indexes that rebuilds have made, with the name that each is of, and its number."""
    for index in indexes:
        match = re.fullmatch(rf"(?P<name>{name_expression})__{re.escape(suffix)}_(?P<number>\d+)", index)
        if match is not None:
            yield index, match["name"], int(match["number"])


def _quoted(name: str) -> str:
    return quote(name, safe="")
