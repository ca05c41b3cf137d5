"""`strandline connect scaffold`: a small project with a connector, its test and its config, that works at once."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.cli.connect.scaffold_texts import FILES, PYPROJECT

Kind = Literal["source", "sink"]


def scaffold(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What the connector is called, for example stock-prices.")
    ],
    kind: Annotated[Kind, typer.Option("--kind", metavar="source|sink", help="What it is to be.")] = "source",
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where to write it; by default a new directory NAME.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a project with a typed connector of your own: a module, a test on a real broker, a config, pyproject.toml.

    Files that exist are never overwritten.
    """
    names = names_of(name, kind)
    place = directory or Path(names["project"])
    made = {
        _filled(file, names): _filled(text, names)
        for file, text in {**FILES[kind], "pyproject.toml": PYPROJECT}.items()
    }
    existing = [file for file in made if (place / file).exists()]
    if existing:
        raise CommandFailed(f"{place / existing[0]} exists already", hint="say --dir with another directory")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file, text in made.items():
            # Two at a time must not mix their files.
            with (place / file).open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise CommandFailed(f"{error.filename or place} cannot be written: {(error.strerror or '').lower()}") from None
    output = Output(as_json=as_json)
    for file in made:
        if as_json:
            output.json_line({"file": str(place / file)})
        else:
            output.line(str(place / file))
    output.talk(f"next: cd {place} && python -m pytest, then python -m strandline connect run {names['module']}.yaml")
    output.flush()


def names_of(name: str, kind: Kind) -> dict[str, str]:
    """Return the names of project, module and class. Raise UsageFailed if there can be none."""
    words = [each for each in re.split(r"[-_ ]+|(?<=[a-z0-9])(?=[A-Z])", name) if each]
    module = "_".join(words).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module):
        raise UsageFailed(f"{name!r} cannot be a connector's name: it has letters, digits and hyphens, a letter first")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in ("strandline", "pytest"):
        raise UsageFailed(f"{name!r} is the name of another Python module", hint=f"say for example {name}-{kind}")
    called = "".join(each[0].upper() + each[1:] for each in words)
    # A worker takes the kind of an installed connector from its name.
    suffix = "" if called.lower().endswith(kind) else kind.capitalize()
    other = "source" if kind == "sink" else "sink"
    if other in called.lower():
        raise UsageFailed(f"{name!r} names a {other}, and --kind is {kind}")
    return {"project": module.replace("_", "-"), "module": module, "class": called + suffix}


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"@{name}@", value)
    return text
