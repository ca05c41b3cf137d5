"""`docs/sqlite.md` tells the truth: its commands run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sqlite_shipping.driving import ROOT

PAGE = (ROOT / "docs" / "sqlite.md").read_text()


@pytest.mark.slow
def test_commands_of_the_page_run_as_they_are_written(bootstrap: str, tmp_path: Path) -> None:
    (script,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    command = f'strandline() {{ {sys.executable} -m strandline "$@"; }}\n'
    environ = {
        "STRANDLINE_BOOTSTRAP": bootstrap,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    ended = subprocess.run(
        ["bash", "-e", "-c", command + script],
        env=os.environ | environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "transaction 0" in ended.stdout
    assert "restored.db is the database of" in ended.stdout
