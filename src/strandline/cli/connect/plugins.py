"""`strandline connect plugins`: which connectors there are, and what their settings mean."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.common.failures import NotFound, did_you_mean
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output

if TYPE_CHECKING:
    from strandline.connect.config import Option
    from strandline.connect.plugins import Plugin


def plugins(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A connector, converter, transform or predicate.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also converters, transforms and predicates; of NAME also what all connectors have."
        ),
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--module", metavar="MODULE", help="Also classes of this module, as MODULE:CLASS."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List connectors that are installed here, or show the settings of one."""
    output = Output(as_json=as_json)
    if name is None:
        _list(output, everything=everything)
    else:
        _show(output, name, modules or [], everything=everything)
    output.flush()


def _list(output: Output, *, everything: bool) -> None:
    from strandline.connect.plugins import Plugins

    rows = [_row(each) for each in sorted(Plugins(), key=lambda each: (each.kind, each.name))]
    if everything:
        rows += _parts()
    if output.as_json:
        for row in rows:
            output.json_line(row)
        return
    cells = [[row["name"], row["kind"], row["version"], row["missing"] or row["about"]] for row in rows]
    output.table(["name", "kind", "version", "about"], cells)


def _row(plugin: Plugin) -> dict[str, Any]:
    """Describe a plugin without importing it: the packages of all of them together take seconds."""
    missing = missing_packages(plugin.extra)
    return {
        "name": plugin.name,
        "kind": plugin.kind,
        "version": plugin.version,
        "about": _about(plugin),
        "missing": f"needs {', '.join(missing)}: pip install 'strandline[{plugin.extra}]'" if missing else None,
        "aliases": list(plugin.aliases),
    }


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra of Strandline that are not installed."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    missing = []
    for line in requires("strandline") or () if extra else ():
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra\s*==\s*["']{re.escape(extra)}["']""", marker):
            name = re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0]
            try:
                distribution(name)
            except PackageNotFoundError:
                missing.append(name)
    return missing


def _about(plugin: Plugin) -> str:
    """Return the first line of the class's docstring, from the text of its module."""
    from importlib.util import find_spec

    module, _, name = plugin.place.partition(":")
    try:
        found = find_spec(module)
        text = Path(found.origin).read_text(encoding="utf-8") if found is not None and found.origin else ""
        classes = [each for each in ast.parse(text).body if isinstance(each, ast.ClassDef) and each.name == name]
    except (ImportError, OSError, ValueError, SyntaxError) as error:
        return f"cannot be read: {error}"
    docstring = ast.get_docstring(classes[0]) if classes else None
    return docstring.splitlines()[0] if docstring else ""


def _parts() -> list[dict[str, Any]]:
    from strandline.connect.validation.parts import PART_KINDS, PART_VERSION, part_names

    return [
        {
            "name": name.rpartition(".")[2],
            "kind": kind.replace("_", " "),
            "version": PART_VERSION,
            "about": name,
            "missing": None,
            "aliases": [name],
        }
        for kind in PART_KINDS
        for name in part_names(kind)
    ]


def _show(output: Output, name: str, modules: list[str], *, everything: bool) -> None:
    options = _options(name, modules, everything=everything)
    if output.as_json:
        from strandline.connect.validation.config_infos import definition_json

        for each in options:
            output.json_line(definition_json(each))
        return
    if not options:
        output.talk(f"{name} has no settings of its own")
        return
    output.table(
        ["setting", "type", "default", "meaning"],
        [[each.name, each.type.lower(), _default(each), _meaning(each)] for each in options],
    )


def _options(name: str, modules: list[str], *, everything: bool) -> list[Option]:
    from strandline.cli.connect.local_connector import plain_failures
    from strandline.connect.failures import InvalidConnectorConfig
    from strandline.connect.plugins import Plugins
    from strandline.connect.validation.checks import options_of
    from strandline.connect.validation.parts import part_config

    known = Plugins([*modules, name.partition(":")[0]] if ":" in name else modules)
    try:
        plugin = known.find(name)
    except InvalidConnectorConfig as error:
        part = part_config(name)
        if part is not None:
            return list(part.options)
        if ":" in name:
            raise NotFound(str(error)) from None
        meant = did_you_mean(name, [each.name for each in known])
        hint = f"{meant}?" if meant else "`strandline connect plugins` lists them"
        raise NotFound(f"there is no connector, converter or transform {name!r}", hint=hint) from None
    with plain_failures(name):
        return list(options_of(plugin).values()) if everything else list(plugin.load().Config.options)


def _default(option: Option) -> str:
    if option.is_required:
        return "required"
    return option.default_text or "-"


def _meaning(option: Option) -> str:
    allowed = f" One of: {', '.join(option.choices)}." if option.choices else ""
    return option.doc + allowed
