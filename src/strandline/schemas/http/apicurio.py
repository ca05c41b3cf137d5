"""What Apicurio's serdes ask for (its core API v3), as requests of Confluent's API with other words.

    POST /apis/registry/v3/groups/{g}/artifacts                          register
    POST /apis/registry/v3/search/versions?groupId=&artifactId=          look up
    GET  /apis/registry/v3/groups/{g}/artifacts/{a}/versions/{v}         a version;  .../content  .../references
    GET  /apis/registry/v3/ids/contentIds/{id}  ids/globalIds/{id}       a schema;   .../references

The artifact `a` of the group `default` is the subject `a`, that of a group `g` the subject `g/a`. Content id and global
id are the schema's id, so that records have the four bytes which Confluent's serializers write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from strandline.schemas.contracts import Json
from strandline.schemas.failures import RegistryError, invalid_schema
from strandline.schemas.http.call import Call
from strandline.schemas.records import AVRO

PREFIX: Final = ("apis", "registry", "v3")
SEARCH: Final = (*PREFIX, "search", "versions")
"""The one request whose body is a schema and not JSON about one."""
_LATEST: Final = "branch=latest"
_GROUP: Final = "default"
_IDS: Final = ("contentIds", "globalIds")


class Translated(NamedTuple):
    """A request of Confluent's API, and how its answer is said in the words of the client."""

    call: Call
    answered: Callable[[Any], Any]
    if_missing: Any = None
    """What is answered if the subject, version or schema is not there; None: the error."""


def translated(call: Call, body: bytes) -> Translated:
    """Return what a request means: one below PREFIX in Confluent's words, another one as it is.

    Raise RegistryError if it means nothing here.
    """
    if call.path[: len(PREFIX)] != PREFIX:
        return Translated(call, _same)
    match call.method, call.path[len(PREFIX) :]:
        case "POST", ("groups", group, "artifacts"):
            return _registration(call, group)
        case "POST", ("search", "versions"):
            return _search(call, body)
        case "GET", ("groups", group, "artifacts", artifact, "versions", version, *rest):
            number = "latest" if version == _LATEST else version
            return _read(call, ("subjects", _subject(group, artifact), "versions", number), rest, _version)
        case "GET", ("ids", kind, schema_id, *rest) if kind in _IDS:
            # An id alone means its text.
            return _read(call, ("schemas", "ids", schema_id), rest or ["content"], _same)
    raise RegistryError(404, "HTTP 404 Not Found")


def _read(call: Call, path: tuple[str, ...], rest: list[str], whole: Callable[[Any], Any]) -> Translated:
    match rest:
        case []:
            return Translated(replace(call, path=path), whole)
        case ["content"]:
            return Translated(replace(call, path=(*path, "schema")), _same)
        case ["references"]:
            return Translated(replace(call, path=path), _references)
    raise RegistryError(404, "HTTP 404 Not Found")


def _registration(call: Call, group: str) -> Translated:
    artifact = call.body if isinstance(call.body, dict) else {}
    first = artifact.get("firstVersion")
    content = first.get("content") if isinstance(first, dict) else None
    name = artifact.get("artifactId")
    given = (content.get("references") or []) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(given, list) or not isinstance(name, str) or not name:
        raise invalid_schema("an artifact needs an artifactId, and a firstVersion.content with a list of references")
    subject, kind = _subject(group, name), artifact.get("artifactType") or AVRO
    body = {"schema": content.get("content"), "schemaType": kind, "references": [_asked(each) for each in given]}

    def answered(made: Json) -> Json:
        metadata = _version({"subject": subject, "schemaType": kind, **made})
        kept = {key: metadata[key] for key in ("groupId", "artifactId", "artifactType")}
        return {"artifact": kept, "version": metadata}

    # Whatever is to happen if the artifact exists: its version is found, or the next one is made.
    return Translated(replace(call, path=("subjects", subject, "versions"), body=body, query={}), answered)


def _search(call: Call, body: bytes) -> Translated:
    subject = _subject(call.text("groupId", _GROUP), call.text("artifactId"))
    asked = {"schema": body.decode("utf-8", "replace"), "schemaType": call.text("artifactType") or AVRO}
    inside = replace(call, path=("subjects", subject), body=asked, query={})
    return Translated(inside, lambda found: {"count": 1, "versions": [_version(found)]}, {"count": 0, "versions": []})


def _same(answer: Any) -> Any:
    return answer


def _version(found: Json) -> Json:
    return {
        **_place(found["subject"], found["version"]),
        "globalId": found["id"],
        "contentId": found["id"],
        "artifactType": found.get("schemaType", AVRO),
        "state": "ENABLED",
    }


def _references(found: Json) -> list[Json]:
    return [{"name": each["name"], **_place(each["subject"], each["version"])} for each in found.get("references", ())]


def _asked(reference: Any) -> Json:
    """Return a reference in Confluent's words. Raise RegistryError if it is none."""
    given = reference if isinstance(reference, dict) else {}
    artifact, version = given.get("artifactId"), str(given.get("version"))
    if not isinstance(artifact, str) or not version.isascii() or not version.isdigit() or len(version) > 10:
        raise invalid_schema("each reference must have a name, an artifactId and a version that is a number")
    return {"name": given.get("name"), "subject": _subject(given.get("groupId"), artifact), "version": int(version)}


def _subject(group: Any, artifact: str) -> str:
    return artifact if not isinstance(group, str) or group in ("", _GROUP) else f"{group}/{artifact}"


def _place(subject: str, version: int) -> Json:
    group, slash, artifact = subject.partition("/")
    if not slash:
        group, artifact = _GROUP, subject
    return {"groupId": group, "artifactId": artifact, "version": str(version)}
