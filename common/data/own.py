"""A data holder's own records: an NPZ file, or a folder of images with one sub-folder per class.

What concerns the file as a whole (format, shape, type) is refused by name. What concerns one record never is: whether a
holder takes part must not depend on a single record. A record that cannot be used (a value outside [0, 1], a label that
does not exist, a damaged image) becomes one without content, which adds a fixed point to a context and nothing to a
gradient; the holder's own log names it, and so does `papfl data check`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.data.cache import DataError
from common.data.catalog import DatasetSpec
from common.data.image import read_image

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


@dataclass(frozen=True)
class OwnRecords:
    """Records in the order in which the file or folder has them, which nothing may depend on (`client_app.manifest`).

    Attributes:
        images: (n, channels, height, width) float32 in [0, 1]; NaN throughout for a record that cannot be used.
        labels: (n,) int64; 0 for such a record.
        problems: what is wrong with which records, for their holder alone.
    """

    images: np.ndarray
    labels: np.ndarray
    problems: tuple[str, ...] = ()


def _list_images(path: Path) -> list[str]:
    """Paths of an image folder's records below it, sorted."""
    names = sorted(
        file.relative_to(path).as_posix()
        for folder in path.iterdir()
        if folder.is_dir() and not folder.name.startswith(".")
        for file in folder.rglob("*")
        if file.suffix.lower() in IMAGE_SUFFIXES
    )
    if not names:
        raise DataError(
            f"data must hold class folders with images ({', '.join(sorted(IMAGE_SUFFIXES))}): {path} has none."
        )
    return names


def read_records(path: Path, spec: DatasetSpec, classes: tuple[str, ...]) -> OwnRecords:
    """Read and check everything.

    Args:
        classes: names of an image folder's class folders; the label is the position. Empty for an NPZ file.

    Raises:
        DataError: a file, shape or type that doesn't fit, named.
    """
    if path.is_file() and path.suffix == ".npz":
        return _read_npz(path, spec)
    return _read_folder(path, spec, _list_images(path), classes)


def list_classes(path: Path, spec: DatasetSpec) -> tuple[str, ...]:
    """Class folders of an image folder, label by position; empty for an NPZ file.

    Every data holder must give a class the same label, whichever classes it has: the folders are either named 0, 1, ...,
    or there are exactly num-classes of them (empty ones count), labelled in the order of their names (in Unicode's composed form).

    Raises:
        DataError: neither.
    """
    if path.is_file() and path.suffix == ".npz":
        return ()
    if not path.is_dir():
        raise DataError(f"data must be an .npz file or a folder of class folders. Received {path}.")
    folders = sorted(
        {_class_name(folder.name) for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")}
    )
    numbered = [str(label) for label in range(spec.num_classes)]
    if set(folders) <= set(numbered):
        return tuple(numbered)
    if len(folders) != spec.num_classes:
        raise DataError(
            f"{path} must hold class folders named 0 to {spec.num_classes - 1}, or exactly num-classes = {spec.num_classes} "
            f"of them. Received {folders[:12]}."
        )
    return tuple(folders)


def _class_name(folder: str) -> str:
    """One of the ways to write a name in Unicode: systems differ in which they keep, and names decide labels."""
    return unicodedata.normalize("NFC", folder)


def _read_npz(path: Path, spec: DatasetSpec) -> OwnRecords:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = {"x", "y"} - set(file.files)
            if missing:
                raise DataError(f"{path} must hold arrays x and y. Received {sorted(file.files)}.")
            x, y = file["x"], file["y"]
    except DataError:
        raise
    except Exception as error:  # a damaged file makes the parsers of its format raise whatever they like
        raise DataError(f"{path} cannot be read as an .npz file: {error}.") from None
    images = as_images(x, spec.image_shape, f"{path}: x")
    if y.shape != (len(images),) or y.dtype.kind not in "iu":
        raise DataError(
            f"{path}: y must be {len(images)} integers, one per record. Received {y.dtype} of shape {y.shape}."
        )
    wrong_value = ~(np.isfinite(images) & (images >= 0) & (images <= 1)).all(axis=(1, 2, 3))
    wrong_label = (y < 0) | (y >= spec.num_classes)
    problems = [f"row {row}: a value of x outside [0, 1]" for row in np.flatnonzero(wrong_value)]
    problems += [
        f"row {row}: label {y[row]} is not from 0 to {spec.num_classes - 1}" for row in np.flatnonzero(wrong_label)
    ]
    return _without(images, y.astype(np.int64), wrong_value | wrong_label, problems)


def _without(images: np.ndarray, labels: np.ndarray, unusable: np.ndarray, problems: list[str]) -> OwnRecords:
    """The records, those that cannot be used without content."""
    images[unusable] = np.nan
    labels[unusable] = 0
    return OwnRecords(images, labels, tuple(problems))


def as_images(x: np.ndarray, image_shape: tuple[int, int, int], where: str) -> np.ndarray:
    """Images of any usual layout as (n, channels, height, width) float32.

    Args:
        x: (n, c, h, w), (n, h, w, c), or (n, h, w) for one channel; uint8, which becomes [0, 1], or floats, which stay.
        where: what to call `x` in an error.

    Raises:
        DataError: another shape or type.
    """
    channels, height, width = image_shape
    if x.ndim == 3 and channels == 1:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1:] == (height, width, channels) and x.shape[1:] != image_shape:
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1:] != image_shape or len(x) == 0:
        raise DataError(
            f"{where} must have shape (n, {channels}, {height}, {width}) or (n, {height}, {width}, {channels}). "
            f"Received {x.shape}."
        )
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x, dtype=np.float32) / np.float32(255.0)
    if x.dtype.kind != "f":
        raise DataError(f"{where} must be uint8 or floating point in [0, 1]. Received {x.dtype}.")
    return np.array(x, dtype=np.float32, order="C")


def _read_folder(path: Path, spec: DatasetSpec, names: list[str], classes: tuple[str, ...]) -> OwnRecords:
    channels = spec.image_shape[0]
    if channels not in (1, 3):
        raise DataError(f"image-shape must have 1 or 3 channels for an image folder. Received {channels}.")
    images = np.empty((len(names), *spec.image_shape), np.float32)
    labels = np.zeros(len(names), np.int64)
    unusable, problems = np.zeros(len(names), dtype=bool), []
    names_of_classes = [_class_name(name) for name in classes]
    for row, name in enumerate(names):
        try:
            labels[row] = names_of_classes.index(_class_name(name.split("/", 1)[0]))
            images[row] = read_image(path / name, spec.image_shape)
        except Exception as error:  # a damaged file makes Pillow raise whatever it likes, even SyntaxError
            unusable[row] = True
            problems.append(f"{name}: {error}")
    return _without(images, labels, unusable, problems)
