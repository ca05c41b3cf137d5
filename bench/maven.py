"""Jars by Maven: a project that names them, and a directory into which they are copied.

Maven's own settings decide where the jars come from, so a mirror or an offline repository works unchanged.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

Artifact = tuple[str, str, str]
"""Group, name and version."""

_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class MavenFailed(Exception):
    """What Maven said at its end."""


def pom(name: str, artifacts: Sequence[Artifact], *, alone: bool = False, kind: str = "jar") -> str:
    """A project that depends on these; `alone` leaves out what they depend on themselves."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<type>{kind}</type>{_ALONE if alone else ''}</dependency>"
        for group, artifact, version in artifacts
    )
    return (
        f"<project><modelVersion>4.0.0</modelVersion><groupId>strandline</groupId><artifactId>{name}</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )


def copy_jars(project: str, libs: Path) -> None:
    """Copy the jars that a project needs when it runs into `libs`; its pom.xml stands beside that directory."""
    file = libs.parent / "pom.xml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(project)
    command = ["mvn", "-q", "-B", "-f", str(file), "dependency:copy-dependencies"]
    options = [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MavenFailed(f"{done.stdout[-800:]}{done.stderr[-800:]}")
