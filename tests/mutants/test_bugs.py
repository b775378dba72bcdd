"""Every planted bug can still be planted; `make mutants` then tells whether it is caught."""

import ast

import pytest

from tests.mutants.__main__ import ROOT, plant
from tests.mutants.bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_bug_applies_to_the_code_as_it_is(bug, tmp_path):
    """The edits fit, what results is still Python, and the named tests exist."""
    plant(bug, tmp_path)
    for file, _, _ in bug.edits:
        ast.parse((tmp_path / file).read_text())
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text()
