"""The runner itself: a bug that is noticed, one that is not, a patch gone stale, a catcher that proves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.mutations.planted import BadPatch, read
from tests.mutations.traps import TRAPS
from tests.mutations.verdict import Outcome, judge

CODE = "def is_even(number: int) -> bool:\n    return number % 2 == 0\n"
CATCHER = """\
import sys
from parity import is_even
sys.exit(0 if is_even(2) and not is_even(3) else "broken invariant: parity")
"""


def patch(old: str, new: str, header: str) -> str:
    diff = "diff --git a/src/parity.py b/src/parity.py\n--- a/src/parity.py\n+++ b/src/parity.py\n@@ -1,2 +1,2 @@\n"
    return f"{header}\n{diff} def is_even(number: int) -> bool:\n-    return {old}\n+    return {new}\n"


def header(*, catch: str = "python tests/catcher.py", expect: str = "broken invariant", trap: str = "isr-race") -> str:
    return f"Trap: {trap}\nBreaks: whether a number is even\n  is told wrong\nCatch: {catch}\nExpect: {expect}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "parity.py").write_text(CODE)
    (root / "tests" / "catcher.py").write_text(CATCHER)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def outcome_of(tree: Path, content: str) -> tuple[Outcome, str]:
    path = tree / "planted.patch"
    path.write_text(content)
    (verdict,) = judge([read(path)], jobs=1, say=print, root=tree)
    assert (tree / "src" / "parity.py").read_text() == CODE, "the tree itself was touched"
    return verdict.outcome, verdict.evidence


def test_a_bug_that_is_noticed(tree: Path) -> None:
    assert outcome_of(tree, patch("number % 2 == 0", "True", header())) == (Outcome.CAUGHT, "broken invariant: parity")


def test_a_bug_that_leaves_the_size_of_its_file(tree: Path) -> None:
    """Patched within the second in which the bytecode of the sound file was made."""
    assert outcome_of(tree, patch("number % 2 == 0", "number % 2 == 1", header()))[0] is Outcome.CAUGHT


def test_a_bug_that_nobody_notices(tree: Path) -> None:
    content = patch("number % 2 == 0", "number % 2 < 1", header())
    assert outcome_of(tree, content)[0] is Outcome.SURVIVED


def test_an_error_of_another_kind_is_no_proof(tree: Path) -> None:
    content = patch("number % 2 == 0", "undefined_name", header())
    outcome, evidence = outcome_of(tree, content)
    assert outcome is Outcome.BROKE
    assert "NameError" in evidence


def test_a_patch_that_no_longer_applies(tree: Path) -> None:
    assert outcome_of(tree, patch("number % 3 == 0", "True", header()))[0] is Outcome.STALE


def test_a_catcher_that_always_fails(tree: Path) -> None:
    content = patch("number % 2 == 0", "True", header(catch="python -c 'raise SystemExit(1)'"))
    assert outcome_of(tree, content)[0] is Outcome.UNSOUND


def test_the_second_catcher_may_notice(tree: Path) -> None:
    both = header(catch="python -c 'pass'\nCatch: python tests/catcher.py")
    assert outcome_of(tree, patch("number % 2 == 0", "True", both))[0] is Outcome.CAUGHT


def test_a_catcher_that_does_not_end(tree: Path) -> None:
    (tree / "tests" / "endless.py").write_text("from parity import is_even\nwhile is_even(3): pass\n")
    content = patch("number % 2 == 0", "True", header(catch="python tests/endless.py") + "Timeout: 2\n")
    assert outcome_of(tree, content)[0] is Outcome.HUNG


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (patch("a", "b", "Trap: isr-race\nCatch: python x\n"), "no Breaks, Expect"),
        (patch("a", "b", header(trap="no-such-trap")), "is no trap"),
        (patch("a", "b", header(catch="make test")), "is run as `python"),
        (header(), "no diff"),
        (patch("a", "b", header()).replace("src/parity.py", "tests/catcher.py"), "never in what looks for it"),
    ],
)
def test_a_header_that_says_too_little(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "planted.patch"
    path.write_text(content)
    with pytest.raises(BadPatch, match=reason):
        read(path)


def test_every_trap_says_what_to_do() -> None:
    assert all(trap.trap and trap.source and trap.we_must for trap in TRAPS.values())
