"""A data holder's own records: an NPZ file, or a folder of images with one sub-folder per class.

Everything is checked before a client serves its first request; every message names what is wrong and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.data.cache import DataError
from common.data.catalog import DatasetSpec

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


@dataclass(frozen=True)
class OwnRecords:
    """Records in the order in which they were found.

    Attributes:
        names: what a manifest freezes the order of: paths of image files relative to the folder; empty for an NPZ file,
            whose order is its rows'.
        images: (n, channels, height, width) float32 in [0, 1].
        labels: (n,) int64.
    """

    names: tuple[str, ...]
    images: np.ndarray
    labels: np.ndarray


def list_records(path: Path) -> tuple[str, ...]:
    """Names of an image folder's records, sorted; empty for an NPZ file.

    Raises:
        DataError: neither an .npz file nor a folder of class folders with images.
    """
    if path.is_file() and path.suffix == ".npz":
        return ()
    if not path.is_dir():
        raise DataError(f"data must be an .npz file or a folder of class folders. Received {path}.")
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
    return tuple(names)


def read_records(path: Path, spec: DatasetSpec, names: tuple[str, ...], classes: tuple[str, ...]) -> OwnRecords:
    """Read and check everything.

    Args:
        names: records of an image folder, in the order wanted; empty for an NPZ file.
        classes: names of an image folder's class folders; the label is the position.

    Raises:
        DataError: a file, shape, range or label that doesn't fit, named.
    """
    if names:
        return _read_folder(path, spec, names, classes)
    return _read_npz(path, spec)


def list_classes(path: Path, spec: DatasetSpec) -> tuple[str, ...]:
    """Class folders of an image folder, label by position; empty for an NPZ file.

    Every data holder must give a class the same label, whichever classes it has: the folders are either named 0, 1, ...,
    or there are exactly num-classes of them (empty ones count), labelled in the order of their names.

    Raises:
        DataError: neither.
    """
    if path.is_file():
        return ()
    folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    numbered = [str(label) for label in range(spec.num_classes)]
    if set(folders) <= set(numbered):
        return tuple(numbered)
    if len(folders) != spec.num_classes:
        raise DataError(
            f"{path} must hold class folders named 0 to {spec.num_classes - 1}, or exactly num-classes = {spec.num_classes} "
            f"of them. Received {folders[:12]}."
        )
    return tuple(folders)


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
    images = _images(x, spec, f"{path}: x")
    labels = _labels(y, spec, len(images), f"{path}: y")
    return OwnRecords((), images, labels)


def _images(x: np.ndarray, spec: DatasetSpec, where: str) -> np.ndarray:
    """(n, c, h, w), (n, h, w, c), or (n, h, w) for one channel; uint8, or floats in [0, 1]."""
    channels, height, width = spec.image_shape
    if x.ndim == 3 and channels == 1:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1:] == (height, width, channels) and x.shape[1:] != spec.image_shape:
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1:] != spec.image_shape or len(x) == 0:
        raise DataError(
            f"{where} must have shape (n, {channels}, {height}, {width}) or (n, {height}, {width}, {channels}). "
            f"Received {x.shape}."
        )
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x, dtype=np.float32) / np.float32(255.0)
    if x.dtype.kind != "f":
        raise DataError(f"{where} must be uint8 or floating point in [0, 1]. Received {x.dtype}.")
    images = np.ascontiguousarray(x, dtype=np.float32)
    wrong = ~(np.isfinite(images) & (images >= 0) & (images <= 1)).all(axis=(1, 2, 3))
    if wrong.any():
        raise DataError(
            f"{where} must be in [0, 1]. {int(wrong.sum())} of {len(images)} records are not, the first at position "
            f"{int(wrong.argmax())}."
        )
    return images


def _labels(y: np.ndarray, spec: DatasetSpec, count: int, where: str) -> np.ndarray:
    if y.shape != (count,) or y.dtype.kind not in "iu":
        raise DataError(f"{where} must be {count} integers, one per record. Received {y.dtype} of shape {y.shape}.")
    wrong = (y < 0) | (y >= spec.num_classes)
    if wrong.any():
        position = int(wrong.argmax())
        raise DataError(
            f"{where} must be from 0 to {spec.num_classes - 1}. {int(wrong.sum())} of {count} labels are not, the first is "
            f"{int(y[position])} at position {position}."
        )
    labels: np.ndarray = y.astype(np.int64)
    return labels


def _read_folder(path: Path, spec: DatasetSpec, names: tuple[str, ...], classes: tuple[str, ...]) -> OwnRecords:
    from PIL import Image

    channels, height, width = spec.image_shape
    if channels not in (1, 3):
        raise DataError(f"image-shape must have 1 or 3 channels for an image folder. Received {channels}.")
    images = np.empty((len(names), *spec.image_shape), np.float32)
    for row, name in enumerate(names):
        try:
            with Image.open(path / name) as image:
                if image.size != (width, height):
                    raise DataError(f"{path / name} must be {width} x {height} pixels. Received {image.size}.")
                pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
        except DataError:
            raise
        except Exception as error:  # as above: Pillow raises even SyntaxError
            raise DataError(f"{path / name} cannot be read as an image: {error}.") from None
        images[row] = pixels.reshape(height, width, channels).transpose(2, 0, 1) / np.float32(255.0)
    labels = _labels(
        np.array([classes.index(name.split("/", 1)[0]) for name in names]), spec, len(names), f"{path}: labels"
    )
    return OwnRecords(names, images, labels)
