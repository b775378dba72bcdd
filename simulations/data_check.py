"""`papfl data check`: what a data holder should know about its records before it joins a run. Nothing is written or sent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common.data.own import list_classes, read_records
from common.rules import spec_of
from common.settings import Settings


def add_command(data: Any) -> None:
    """Register the command with `papfl data`."""
    check = data.add_parser("check", help="which of your own records a run could not use, before you join one")
    check.add_argument("path", type=Path, help="an .npz file with x and y, or a folder of class folders with images")
    check.add_argument("--image-shape", default=Settings.image_shape, help="channels,height,width")
    check.add_argument("--num-classes", type=int, default=Settings.num_classes)
    check.set_defaults(handler=_check)


def _check(options: argparse.Namespace) -> int:
    spec = spec_of(Settings(dataset="own", image_shape=options.image_shape, num_classes=options.num_classes))
    found = read_records(options.path, spec, list_classes(options.path, spec))
    for problem in found.problems:
        print(problem)
    usable = ~np.isnan(found.images).any(axis=(1, 2, 3))
    print(f"{options.path}: {len(found.labels)} records, {int(usable.sum())} of them usable")
    return 1 if found.problems else 0
