"""Build hook: compile the hot path where a C compiler is at hand, and do without it where none is.

The modules that `src/strandline/_twins.py` names run as plain Python everywhere. This hook lets Cython compile the same
text to extensions that shadow them, with the C types of the `.pxd` file beside each. A wheel built with a compiler
carries the extensions, an editable install gets them beside the source, and without a compiler the build goes on and
says so. Run as a script, it builds them in place again, which every change to one of these files or to the `.pxd`
beside it needs: until then, the plain text is used. A few modules are Cython only (`.pyx`), and without them others do
their work.

`STRANDLINE_COMPILE=0` never compiles; `STRANDLINE_COMPILE=1` fails if compiling fails, for those who publish wheels.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE: Final = Path(__file__).parent / "src"
DIRECTIVES: Final = {
    "language_level": "3",
    # These modules work on what strangers sent: bounds and overflows stay checked, with Python's errors.
    "boundscheck": True,
    "overflowcheck": True,
    # What is used before it is set is an AttributeError as in plain Python, and does not end the process.
    "nonecheck": True,
    # The types come from the .pxd files; the annotations are for mypy and would mean Python objects here.
    "annotation_typing": False,
}
LOOPS: Final = ("strandline.codec.columns.", "strandline.schemas.arrow.")
LOOP_DIRECTIVES: Final = {
    **DIRECTIVES,
    "overflowcheck": False,
    "nonecheck": False,
    "wraparound": False,
    "initializedcheck": False,
}
"""For the loops over records and values. They index from the front; their arithmetic is meant to wrap as C's does."""


def compiled_modules() -> dict[str, tuple[str, ...]]:
    """Return the modules to compile and the suffixes of their files. The list is read without importing the package."""
    spec = importlib.util.spec_from_file_location("_twins", SOURCE / "strandline" / "_twins.py")
    assert spec is not None
    assert spec.loader is not None
    twins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twins)
    return {f"{twins.PACKAGE}.{name}": twins.sources(name) for name in twins.COMPILED + twins.NATIVE}


MODULES: Final = compiled_modules()


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
            self.app.display_warning(f"strandline: the hot path stays plain Python and is slower ({error})")
            return
        if version == "editable":
            put_beside_source(extensions)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for name, extension in extensions.items():
            build_data["force_include"][str(extension)] = str(_file(name, "").parent / extension.name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "objects"):
            self.objects.cleanup()


def _file(name: str, suffix: str) -> Path:
    """Return the path of a module's file, below the source directory."""
    return Path(*name.split(".")).with_suffix(suffix)


def source_digest(name: str) -> str:
    """Return what an extension remembers of the text that it was made from."""
    text = b"".join((SOURCE / _file(name, suffix)).read_bytes() for suffix in MODULES[name])
    return hashlib.sha256(text).hexdigest()


def compile_all(directory: Path, wanted: Collection[str] = MODULES.keys()) -> dict[str, Path]:
    """Compile modules within `directory` and return the path of each extension by the name of its module."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension  # type: ignore[import-untyped]
        from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]
    except ImportError as error:
        raise CannotCompile(f"{error}") from error

    for name, (suffix, *types) in MODULES.items():
        target = directory / _file(name, suffix)
        target.parent.mkdir(parents=True, exist_ok=True)
        for package in target.relative_to(directory).parents[:-1]:
            (directory / package / "__init__.py").touch()
        text = (SOURCE / _file(name, suffix)).read_text()
        target.write_text(f'{text}\n\nSOURCE_DIGEST = "{source_digest(name)}"\n')
        for each in types:
            shutil.copy(SOURCE / _file(name, each), target.parent)

    working_directory = os.getcwd()
    os.chdir(directory)
    try:
        loops = [name for name in MODULES if name.startswith(LOOPS)]
        others = sorted({*MODULES} - {*loops})
        extensions = [
            extension
            for names, directives in ((loops, LOOP_DIRECTIVES), (others, DIRECTIVES))
            for extension in cythonize(  # type: ignore[no-untyped-call]
                [
                    Extension(name, [str(_file(name, MODULES[name][0]))], extra_compile_args=["-O2", "-g0", "-w"])
                    for name in names
                    if name in wanted
                ],
                compiler_directives=directives,
                quiet=True,
            )
        ]
        command = build_ext(Distribution({"name": "strandline", "ext_modules": extensions}))
        command.build_lib = str(directory / "lib")
        command.build_temp = str(directory / "objects")
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
    # Whatever stops a compiler (none there, no headers, no memory) must not stop an installation, and setuptools
    # raises SystemExit for some of it. The reason is shown to the user by the caller.
    except (Exception, SystemExit) as error:
        raise CannotCompile(f"{type(error).__name__}: {error}") from error
    finally:
        os.chdir(working_directory)
    extension_suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return {name: directory / "lib" / _file(name, extension_suffix) for name in wanted}


def put_beside_source(extensions: dict[str, Path]) -> None:
    """Replace each in one step: a process that has the old one mapped must not see its bytes change."""
    for name, extension in extensions.items():
        target = SOURCE / _file(name, "").parent / extension.name
        temporary = target.with_name(f"{extension.name}.{os.getpid()}")
        shutil.copy(extension, temporary)
        os.replace(temporary, target)


def main() -> int:
    """Compile the modules that the command line names, or all of them, and put them beside their texts."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            extensions = compile_all(Path(directory), sys.argv[1:] or MODULES.keys())
        except CannotCompile as error:
            print(f"not compiled, the plain twins are used: {error}", file=sys.stderr)
            return 1
        put_beside_source(extensions)
    print("compiled", *extensions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
