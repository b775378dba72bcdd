"""One planted defect: what is wrong, the edit that makes it so, and the tests of which at least one must catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One planted defect.

    Attributes:
        name: what is wrong.
        edits: (file, text that stands there once, text instead).
        tests: pytest ids; `caught` means that one of them fails.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


def bug(name: str, file: str, before: str, after: str, *tests: str) -> Bug:
    """A defect of one edit."""
    return Bug(name, ((file, before, after),), tests)
