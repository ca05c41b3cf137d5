"""The snippets of docs/outbox.md run one after the other, and so does the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.outbox.test_adding import url_of

from strandline import EmbeddedBroker

ROOT = Path(__file__).parents[2]


def test_the_snippets_of_the_page_run(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("orders", 1)
    page = (ROOT / "docs" / "outbox.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 7
    namespace: dict[str, Any] = {}
    try:
        for each in snippets:
            text = each.replace("localhost:9092", broker.bootstrap)
            text = text.replace("postgresql+psycopg://localhost/shop", url_of(postgres).render_as_string())
            text = text.replace("postgresql://localhost/shop", postgres)
            exec(compile(text, "docs/outbox.md", "exec"), namespace)
    finally:
        if "relay" in namespace:
            namespace["relay"].stop()
    namespace["engine"].dispose()
    assert namespace["relay"].counts.sent == 1


def test_the_example_runs() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / "outbox.py"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "160 was booked: 160 is right" in ended.stdout
