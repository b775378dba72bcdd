"""One image file as pixels in [0, 1]: upright, and on the scale that its mode has. A mode without a known scale is refused.

Pillow's own conversion to grey or RGB clips 16-bit values to white, and shows whatever colour lies under transparency.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "YCbCr")
# TIFF's tags: bits of a sample, what zero means.
_BITS, _PHOTOMETRIC = 258, 262
_WHITE_IS_ZERO = 0


def read_image(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """The image as float32 in [0, 1].

    Args:
        shape: (channels, height, width) that it must have, with 1 or 3 channels; grey becomes RGB and RGB grey.

    Raises:
        ValueError: another size, a mode without a known scale, transparent pixels. Whatever else Pillow raises.
    """
    from PIL import Image, ImageOps

    channels, height, width = shape
    # Not by name: Pillow then maps a plain TIFF into memory, and gets those that lie on their side wrong.
    with path.open("rb") as file, Image.open(file) as image:
        upright = image
        if sorted(image.size) == sorted((width, height)):  # else nothing of it is decoded
            upright = ImageOps.exif_transpose(image)
        if upright.size != (width, height):
            raise ValueError(f"must be {width} x {height} pixels, has {upright.size[0]} x {upright.size[1]}")
        if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
            grey = np.asarray(upright).astype(np.float32) / np.float32(_most(image))
            if _tag(image, _PHOTOMETRIC) == _WHITE_IS_ZERO:
                grey = 1 - grey
            return np.repeat(grey[None], channels, axis=0)
        if image.mode not in _EIGHT_BIT:
            raise ValueError(f"mode must be 8-bit grey or RGB, a palette, or 16-bit grey, is {image.mode}: save it so")
        if upright.has_transparency_data and upright.convert("RGBA").getchannel("A").getextrema()[0] < 255:
            raise ValueError(
                f"mode is {image.mode} with transparent pixels, which have no colour: put it on a background"
            )
        pixels = np.asarray(upright.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1) / np.float32(255.0)


def _most(image: Any) -> int:
    """What white is in a 16-bit image; TIFF also has 12 bits in it."""
    if image.format not in ("PNG", "TIFF", "PPM"):
        raise ValueError(f"mode {image.mode} of a {image.format} file has no known scale: save it as PNG")
    if "transparency" in image.info:
        raise ValueError(f"mode is {image.mode} with a transparent value, which has no colour: put it on a background")
    return int(2 ** _tag(image, _BITS, 16)) - 1


def _tag(image: Any, number: int, default: int | None = None) -> Any:
    value = image.tag_v2.get(number, default) if image.format == "TIFF" else default
    return value[0] if isinstance(value, tuple) else value
