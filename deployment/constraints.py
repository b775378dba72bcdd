"""The version bounds of pyproject.toml as constraints for pip: `python constraints.py pyproject.toml > constraints.txt`.

For whoever installs a dependency apart from papfl, as the image does with PyTorch's CPU build: without bounds, pip takes the
newest one, which papfl may not allow. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def constraints(pyproject: Path) -> list[str]:
    """One line per dependency, without its extras, which pip refuses in a constraint."""
    dependencies = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [re.sub(r"\[.*?\]", "", dependency) for dependency in dependencies]


if __name__ == "__main__":
    print("\n".join(constraints(Path(sys.argv[1]))))
