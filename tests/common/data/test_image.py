"""Image files as cameras, scanners and clinics write them: each is on its own scale, or refused by name."""

import unicodedata
import zlib

import numpy as np
import pytest
from PIL import Image

from common.data.catalog import DatasetSpec
from common.data.image import read_image
from common.data.own import list_classes, read_records

WIDTH, HEIGHT = 20, 16
GREY, RGB = (1, HEIGHT, WIDTH), (3, HEIGHT, WIDTH)
RAMP = np.linspace(0, 1, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)


def grey16(dtype="<u2", most=65535):
    return Image.fromarray(np.rint(RAMP * most).astype(dtype))


def colour(mode):
    pixels = np.stack([RAMP, 1 - RAMP, RAMP**2], -1)
    return Image.fromarray(np.rint(pixels * 255).astype(np.uint8)).convert(mode)


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
@pytest.mark.parametrize("shape", [GREY, RGB])
def test_16_bit_grey_is_scaled_not_clipped(tmp_path, name, shape):
    """In 0.1.0 everything above 255 of 65,535 was white."""
    grey16().save(tmp_path / name)
    image = read_image(tmp_path / name, shape)
    assert image.dtype == np.float32
    assert image.shape == shape
    assert np.abs(image - RAMP).max() < 1e-5


def test_a_tiff_may_have_12_bits_or_zero_for_white(tmp_path):
    grey16().save(tmp_path / "white.tif", tiffinfo={262: 0})
    assert Image.open(tmp_path / "white.tif").tag_v2[262] == 0
    assert np.abs(read_image(tmp_path / "white.tif", GREY) - (1 - RAMP)).max() < 1e-5
    packed = np.rint(RAMP * 4095).astype(np.uint32).reshape(-1, 2)
    three = np.stack([packed[:, 0] >> 4, (packed[:, 0] & 15) << 4 | packed[:, 1] >> 8, packed[:, 1] & 255], -1)
    write_tiff(tmp_path / "twelve.tif", three.astype(np.uint8).tobytes(), bits=12)
    assert Image.open(tmp_path / "twelve.tif").mode == "I;16"
    assert np.abs(read_image(tmp_path / "twelve.tif", GREY) - RAMP).max() < 2e-4


def write_tiff(path, pixels, *, bits, sample_format=1):
    """One uncompressed strip: Pillow itself writes neither 12 bits nor signed numbers."""
    entries = [
        (256, WIDTH), (257, HEIGHT), (258, bits), (259, 1), (262, 1), (273, 8), (277, 1), (278, HEIGHT),
        (279, len(pixels)), (339, sample_format),
    ]  # fmt: skip
    directory = len(entries).to_bytes(2, "little")
    for tag, value in entries:
        directory += b"".join(n.to_bytes(size, "little") for n, size in ((tag, 2), (4, 2), (1, 4), (value, 4)))
    path.write_bytes(b"II*\0" + (8 + len(pixels)).to_bytes(4, "little") + pixels + directory + bytes(4))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA"])
@pytest.mark.parametrize("shape", [GREY, RGB])
def test_8_bit_modes_are_what_they_were(tmp_path, mode, shape):
    original = colour(mode)
    original.save(tmp_path / "x.png")
    wanted = np.asarray(original.convert("L" if shape == GREY else "RGB")).reshape(HEIGHT, WIDTH, -1) / 255
    assert np.array_equal(read_image(tmp_path / "x.png", shape), wanted.transpose(2, 0, 1).astype(np.float32))


def transparent(path):
    image = colour("RGBA")
    image.putpixel((3, 3), (255, 0, 0, 10))
    image.save(path)


def palette_hole(path):
    image = colour("P")
    image.save(path, transparency=image.getpixel((3, 3)))


def grey16_hole(path):
    grey16().save(path)
    data = path.read_bytes()
    chunk = b"tRNS\x12\x34"
    hole = b"\0\0\0\2" + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    path.write_bytes(
        data.replace(b"\0\0" + data[data.index(b"IDAT") - 2 :], hole + b"\0\0" + data[data.index(b"IDAT") - 2 :])
    )


@pytest.mark.parametrize(
    ("name", "write", "named"),
    [
        ("x.tif", lambda path: Image.fromarray(RAMP.astype(np.float32)).save(path), "is F"),
        ("x.tif", lambda path: Image.fromarray(np.rint(RAMP * 1e6).astype(np.int32)).save(path), "is I"),
        ("x.tif", lambda path: write_tiff(path, bytes(2 * WIDTH * HEIGHT), bits=16, sample_format=2), "is I"),
        ("x.jpg", lambda path: colour("CMYK").save(path), "is CMYK"),
        ("x.tif", lambda path: colour("LAB").save(path), "is LAB"),
        ("x.png", transparent, "RGBA with transparent pixels"),
        ("x.png", palette_hole, "P with transparent pixels"),
        ("x.png", grey16_hole, "transparent value"),
    ],
)
def test_what_has_no_known_scale_is_refused_by_name(tmp_path, name, write, named):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=named):
        read_image(tmp_path / name, RGB)


@pytest.mark.parametrize(
    ("name", "options"), [("x.jpg", {}), ("x.png", {}), ("x.tif", {}), ("x.tif", {"compression": "tiff_lzw"})]
)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_tags_are_honoured(tmp_path, orientation, name, options):
    """A phone turns no pixels: it says how the picture is to be turned."""
    upright = np.zeros((HEIGHT, WIDTH), np.uint8)
    upright[: HEIGHT // 2, : WIDTH // 2] = 255
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = Image.fromarray(upright)
    if orientation > 1:
        stored = stored.transpose(turn[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / name, exif=exif, **options)
    image = read_image(tmp_path / name, GREY)[0]
    assert np.abs(image - upright / 255).mean() < 0.02


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_class_has_one_label_whichever_system_wrote_its_name(tmp_path, form):
    """One system keeps é as one letter, another as e and an accent: they sort before and after f."""
    spec = DatasetSpec("own", (1, 16, 16), 3, (0.5,), (0.5,), ())
    for value, name in enumerate(("fin", "été", "zone")):
        folder = tmp_path / "t" / unicodedata.normalize(form, name)
        folder.mkdir(parents=True)
        Image.new("L", (16, 16), value).save(folder / "x.png")
    classes = list_classes(tmp_path / "t", spec)
    assert classes == ("fin", "zone", "été")
    # Classes as the other system has frozen them, too.
    for known in (classes, tuple(unicodedata.normalize("NFD", name) for name in classes)):
        records = read_records(tmp_path / "t", spec, known)
        assert records.problems == ()
        by_brightness = sorted(
            (round(255 * float(x.mean())), label) for x, label in zip(records.images, records.labels, strict=True)
        )
        assert by_brightness == [(0, 0), (1, 2), (2, 1)]


def test_both_forms_in_one_folder_are_one_class(tmp_path):
    spec = DatasetSpec("own", (1, 16, 16), 2, (0.5,), (0.5,), ())
    for value, name in enumerate(("été", unicodedata.normalize("NFD", "été"), "zone")):
        (tmp_path / "t" / name).mkdir(parents=True)
        Image.new("L", (16, 16), value).save(tmp_path / "t" / name / f"{value}.png")
    if len(list((tmp_path / "t").iterdir())) == 2:
        pytest.skip("this file system knows one form only")
    assert list_classes(tmp_path / "t", spec) == ("zone", "été")
    assert sorted(read_records(tmp_path / "t", spec, ("zone", "été")).labels) == [0, 1, 1]
