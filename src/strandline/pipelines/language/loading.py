"""A file becomes a pipeline: it is executed (Python) or read (SQL), and checked. No Java is started.

A Python file is a module while it is loaded and afterwards, under a name of its own, with its directory first on the
path for what it imports; a copy, as a version keeps one, has that of the file it was made from. `modules_of` are the
modules that came with it: Spark's workers cannot import them by name, so the run sends them by value.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from strandline.pipelines.failures import PipelineRefused, refused
from strandline.pipelines.language import checks, declaring, graph
from strandline.pipelines.language.declaring import Declarations
from strandline.pipelines.language.model import Pipeline, Place

BESIDE: Final = ".beside"
"""In the directory of a copy, a file that says where the modules are that it imports."""

_modules: dict[str, list[ModuleType]] = {}


def load(path: str | Path, *, known: Collection[str] | None = ()) -> Pipeline:
    """Return the pipeline in a file, `.sql` or Python; PipelineRefused says in one sentence what is wrong in it.

    `known` are names of datasets of other pipelines, which it may read; None leaves unknown inputs to
    `graph.check_inputs`.
    """
    file = Path(path)
    text = _text(file)
    if file.suffix.lower() not in (".py", ".sql"):
        # Prose is hardly ever Python, and its "syntax error" would not help the user.
        raise refused(f"{file} is neither Python nor SQL by its name: name the pipeline's .py or .sql file")
    with declaring.collecting(str(path)) as declared:
        if file.suffix.lower() == ".sql":
            from strandline.pipelines.language import sql_file

            sql_file.declare(text, str(path))
        else:
            _execute(file, text, declared)
    name = declared.name or file.stem
    checks.check_name("the pipeline", name, Place(str(path), 1))
    return graph.arranged(declared, name, known=known)


def modules_of(pipeline: Pipeline) -> list[ModuleType]:
    return _modules.get(pipeline.file, [])


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise refused(f"there is no file {file}: name the pipeline's .py or .sql file") from None
    except IsADirectoryError:
        raise refused(f"{file} is a directory: name the pipeline's .py or .sql file") from None
    except UnicodeDecodeError as error:
        raise refused(f"{file} is not text in UTF-8 (at byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise refused(f"{file} cannot be read ({error.strerror})") from None


def _execute(file: Path, text: str, declared: Declarations) -> None:
    module = ModuleType(f"strandline_pipeline_{file.stem}")
    module.__file__ = str(file)
    try:
        code = compile(text, declared.file, "exec")
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise refused(
            f"{error.msg}{f' in `{line}`' if line else ''}: correct the syntax", Place(declared.file, error.lineno or 1)
        ) from None
    except ValueError as error:
        raise refused(f"{declared.file} is no Python file ({error}): name the pipeline's .py or .sql file") from None
    # What came with it before may have been edited since.
    for each in _modules.pop(declared.file, []):
        sys.modules.pop(each.__name__, None)
    home = _home(file)
    with _importable(home):
        sys.modules[module.__name__] = module
        try:
            exec(code, vars(module))
        except PipelineRefused:
            raise
        except (Exception, SystemExit) as error:
            raise refused(
                f"{_said(error)}: the file must load without an error", _raised_at(error, declared)
            ) from error
    _modules[declared.file] = [module, *_came_with(home)]


def _home(file: Path) -> Path:
    beside = file.parent / BESIDE
    return Path(beside.read_text()) if beside.is_file() else file.parent


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    entry = str(directory.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _came_with(directory: Path) -> list[ModuleType]:
    """Modules that it imported, or others did, from beside it."""
    home = directory.resolve()
    found = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if (
            file is not None
            and Path(file).is_relative_to(home)
            and Path(file).relative_to(home).parts[0]
            in (
                top,
                f"{top}.py",
            )
        ):
            found.append(module)
    return found


def _said(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
        return "PySpark is not installed (say `pip install 'strandline[spark]'`)"
    if isinstance(error, SystemExit):
        return "it calls exit()"
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _raised_at(error: BaseException, declared: Declarations) -> Place:
    """Return the last line of the file itself on the way to the exception."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == declared.file]
    return Place(declared.file, (lines[-1] if lines else 1) or 1)
