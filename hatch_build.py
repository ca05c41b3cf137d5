"""Build hook: compile the hot loops over records where a C compiler is at hand, and do without it where none is.

`_scan.py` (the decoder's), `_check.py` (the leader's, for what producers send) and `_clean.py` (the cleaner's) in
`src/strandline/codec/columns` run as plain Python everywhere. This hook lets Cython compile the same text to extensions
that shadow them. A wheel built with a compiler carries the extensions, an editable install gets them beside the source,
and without a compiler the build goes on and says so. Run as a script, it builds them in place again, which every change
to one of these files or to the `.pxd` beside it needs (a test notices a stale one).

`STRANDLINE_COMPILE=0` never compiles; `STRANDLINE_COMPILE=1` fails if compiling fails, for those who publish wheels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "strandline.codec.columns"
NAMES = ("_scan", "_check", "_clean")
SOURCE_DIR = Path(__file__).parent / "src" / Path(*PACKAGE.split("."))
DIRECTIVES = {
    "language_level": "3",
    # Bounds stay checked: the decoder reads bytes that strangers sent, and an IndexError is part of its contract.
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    # The types come from the .pxd files; the annotations are for mypy and would mean Python objects here.
    "annotation_typing": False,
}


class CannotCompile(Exception):
    """No Cython, no compiler, or no headers: the plain twin is used."""


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        mode = os.environ.get("STRANDLINE_COMPILE", "auto")
        if self.target_name != "wheel" or mode == "0":
            return
        self.objects = tempfile.TemporaryDirectory()
        try:
            extensions = compile_all(Path(self.objects.name))
        except CannotCompile as error:
            if mode == "1":
                raise
            self.app.display_warning(
                f"strandline: decoder, checker and cleaner stay plain Python and are slower ({error})"
            )
            return
        if version == "editable":
            put_beside_source(extensions)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for extension in extensions:
            build_data["force_include"][str(extension)] = str(Path(*PACKAGE.split("."), extension.name))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "objects"):
            self.objects.cleanup()


def source_digest(name: str) -> str:
    """What an extension remembers of the text it was made from."""
    text = (SOURCE_DIR / f"{name}.py").read_bytes() + (SOURCE_DIR / f"{name}.pxd").read_bytes()
    return hashlib.sha256(text).hexdigest()


def compile_all(directory: Path) -> list[Path]:
    """Compile the modules of `NAMES` within `directory` and return the extensions' paths."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension  # type: ignore[import-untyped]
        from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]
    except ImportError as error:
        raise CannotCompile(f"{error}") from error

    package_dir = directory / Path(*PACKAGE.split("."))
    package_dir.mkdir(parents=True)
    for parent in (package_dir, *package_dir.parents[: PACKAGE.count(".")]):
        (parent / "__init__.py").touch()
    for name in NAMES:
        text = (SOURCE_DIR / f"{name}.py").read_text()
        text = text.replace('SOURCE_DIGEST = ""', f'SOURCE_DIGEST = "{source_digest(name)}"')
        (package_dir / f"{name}.py").write_text(text)
        shutil.copy(SOURCE_DIR / f"{name}.pxd", package_dir)

    working_directory = os.getcwd()
    os.chdir(directory)
    try:
        extensions = cythonize(  # type: ignore[no-untyped-call]
            [
                Extension(
                    f"{PACKAGE}.{name}",
                    [str(Path(*PACKAGE.split("."), f"{name}.py"))],
                    extra_compile_args=["-O2", "-g0"],
                )
                for name in NAMES
            ],
            compiler_directives=DIRECTIVES,
            quiet=True,
        )
        command = build_ext(Distribution({"name": "strandline", "ext_modules": extensions}))
        command.build_lib = str(directory / "lib")
        command.build_temp = str(directory / "objects")
        command.ensure_finalized()
        command.run()
    # Whatever stops a compiler (none there, no headers, no memory) must not stop an installation, and setuptools
    # raises SystemExit for some of it. The reason is shown to the user by the caller.
    except (Exception, SystemExit) as error:
        raise CannotCompile(f"{type(error).__name__}: {error}") from error
    finally:
        os.chdir(working_directory)
    built = directory / "lib" / Path(*PACKAGE.split("."))
    return [built / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in NAMES]


def put_beside_source(extensions: list[Path]) -> None:
    """Replace each in one step: a process that has the old one mapped must not see its bytes change."""
    for extension in extensions:
        temporary = SOURCE_DIR / f"{extension.name}.{os.getpid()}"
        shutil.copy(extension, temporary)
        os.replace(temporary, SOURCE_DIR / extension.name)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        try:
            extensions = compile_all(Path(directory))
        except CannotCompile as error:
            print(f"not compiled, the plain twins are used: {error}", file=sys.stderr)
            return 1
        put_beside_source(extensions)
    print("compiled", *(extension.name for extension in extensions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
