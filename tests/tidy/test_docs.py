"""What the docs and tables say is what the code does."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from strandline.broker.network.routes import CONTROLLER, Route, routes
from strandline.cli import command_names
from strandline.config.docs import configuration_page

ROOT = Path(__file__).parents[2]
ROUTES = [
    *routes().values(),
    *(route for route in routes(CONTROLLER).values() if route.listeners == (CONTROLLER,)),
]


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name]


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    missing = [name for name in command_names() if f"strandline {name}" not in page]
    assert not missing, f"docs/cli.md does not name {missing}"


def test_every_setting_is_documented() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_page(), "run `make generate`"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_the_table_that_dispatches_agrees_with_the_handler(route: Route) -> None:
    module = import_module(route.module_name)
    assert route.api_key == module.API_KEY
    assert (route.version_min, route.version_max) == module.VERSIONS
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", route.name).lower()
    message = getattr(import_module(f"strandline.codec.messages.{snake}_request"), f"{route.name}Request")
    assert route.api_key == message.API_KEY
    assert route.flexible_from == message.FLEXIBLE_FROM
    assert route.version_max <= message.VERSION_MAX
    if route.hot is None:
        assert route.load().request_class is message


def test_architecture_names_every_api() -> None:
    page = (ROOT / "docs" / "apis.md").read_text()
    for route in ROUTES:
        assert re.search(rf"\| {route.api_key} \| {route.name} \| {route.version_min}-{route.version_max} \|", page), (
            f"docs/apis.md does not name {route.name} {route.version_min}-{route.version_max}"
        )


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    wanted += [each for group in project["dependency-groups"].values() for each in group]
    named = [re.split(r"[^a-zA-Z0-9_-]", each)[0] for each in wanted]
    missing = [name for name in named if f"`{name}`" not in page]
    assert not missing, f"docs/decisions/0001-dependencies.md says nothing of {missing}"


def test_a_test_that_make_quick_leaves_out_says_why() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in tracked("tests/*.py")
        if re.search(r"mark\.lengthy(?!\(\s*\")", path.read_text())
    ]
    assert not silent, f"the marker `lengthy` has no reason in {silent}"


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken, "\n".join(broken)
