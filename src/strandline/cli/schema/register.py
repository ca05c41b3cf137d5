"""`strandline schema register`: a schema in a file becomes a version of a subject."""

from __future__ import annotations

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.access import Normalize, References, SchemaFile, SchemaTypeName, SubjectName, schema_body
from strandline.cli.schema.registry_api import SchemaApi


def register(
    subject: SubjectName,
    file: SchemaFile,
    kind: SchemaTypeName = None,
    references: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Register a schema as the next version of a subject, unless it is there."""
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    body = schema_body(file, kind, references)
    found = api.ask("POST", "subjects", subject, "versions", body=body, normalize=normalize)
    # Older registries answer with the id alone.
    version = found.get("version")
    if version is None:
        version = api.ask("POST", "subjects", subject, body=body, normalize=normalize)["version"]
    if as_json:
        output.json_line({"subject": subject, "version": version, "id": found["id"]})
    else:
        output.line(f"{subject} version {version} has the id {found['id']}")
    output.flush()
