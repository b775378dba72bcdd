"""The image's recipe against pyproject.toml, without Docker: versions and packages are listed there alone."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
RECIPE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTALLS = re.findall(r"pip install ([^\n]*)", RECIPE)


def test_every_install_is_within_the_bounds_of_the_project():
    """In 0.1.0 PyTorch was installed without any, and then papfl's own bound refused what was there."""
    assert len(INSTALLS) == 2
    for line in INSTALLS:
        assert "--constraint /tmp/constraints.txt" in line
    assert "constraints.py pyproject.toml > /tmp/constraints.txt" in RECIPE
    assert not re.search(r"torch\w*\s*[<>=~!]=?\s*\d", RECIPE), "a second source of bounds"


def test_the_bounds_are_those_of_the_project():
    printed = subprocess.run(
        [sys.executable, ROOT / "deployment" / "constraints.py", ROOT / "pyproject.toml"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    bounds = {Requirement(line).name: Requirement(line) for line in printed}
    assert not any(bound.extras for bound in bounds.values())  # pip refuses them in constraints
    wanted = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    assert {bound.name: bound.specifier for bound in bounds.values()} == {w.name: w.specifier for w in wanted}
    for name in ("torch", "torchvision"):
        assert any(part.operator == "<" for part in bounds[name].specifier), f"{name} has no upper bound"


def test_every_package_is_in_the_image():
    """Named twice of necessity: what Docker may see, and what it copies."""
    packages = {name.split(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]}
    assert packages <= set(re.findall(r"^COPY (\w+) \w+$", RECIPE, re.MULTILINE))
    assert packages <= set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))


def test_empty_packages_are_packages(tmp_path):
    """What stands in for them while dependencies are installed; in 0.1.0 they became namespaces, without their __init__.py."""
    code = re.search(r'python3 -c "(import pathlib.*?)"', RECIPE, re.DOTALL).group(1).replace("\\\n", "")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    made = {path.parent.relative_to(tmp_path).as_posix().replace("/", ".") for path in tmp_path.rglob("__init__.py")}
    assert made == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_image_has_a_python_that_the_project_allows():
    from packaging.specifiers import SpecifierSet

    versions = set(re.findall(r"^FROM python:(\d+\.\d+)", RECIPE, re.MULTILINE))
    assert len(versions) == 1
    assert versions.pop() in SpecifierSet(PROJECT["project"]["requires-python"])
