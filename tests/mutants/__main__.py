"""Run every planted bug: `make mutants`. Exit code 1 if one is missed or a test fails without any bug."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.bug import Bug
from tests.mutants.bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("common", "client_app", "server_app", "simulations", "deployment", "papfl", "tests")
_TESTS_FAILED = 1  # pytest's exit code; 2 and above are errors of the command, not a test that caught something


def plant(bug: Bug, folder: Path) -> None:
    """A copy of the code with the bug in it.

    Raises:
        ValueError: a text to be replaced does not stand there exactly once: the bug needs to be written anew.
    """
    for package in _PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, before, after in bug.edits:
        text = (folder / file).read_text()
        if text.count(before) != 1:
            raise ValueError(
                f"{bug.name}: {file} must have this text once, it has it {text.count(before)} times:\n{before}"
            )
        (folder / file).write_text(text.replace(before, after))


def run_tests(folder: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code and its last lines, in a copy of the code."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return result.returncode, "\n".join(result.stdout.splitlines()[-4:])


def try_bug(bug: Bug) -> tuple[str, str]:
    """("caught", which test) or ("missed", ...) or ("broken", why)."""
    with tempfile.TemporaryDirectory() as name:
        plant(bug, Path(name))
        code, tail = run_tests(Path(name), list(bug.tests))
    if code == _TESTS_FAILED:
        failed = [line.split()[1].split("::")[-1] for line in tail.splitlines() if line.startswith("FAILED")]
        return "caught", failed[0] if failed else tail
    return ("missed" if code == 0 else "broken"), tail


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    bugs = [bug for bug in BUGS if options.only in bug.name]
    every = sorted({test for bug in bugs for test in bug.tests})
    code, tail = run_tests(ROOT, every)
    print(f"without any bug: {tail.splitlines()[-1]}", flush=True)
    if code != 0:
        return 1
    missed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for bug, (outcome, detail) in zip(bugs, pool.map(try_bug, bugs), strict=True):
            print(f"{outcome:7} {bug.name}  [{detail}]", flush=True)
            missed += outcome != "caught"
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
