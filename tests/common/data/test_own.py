import numpy as np
import pytest
from PIL import Image

from common.data.cache import DataError
from common.data.catalog import DatasetSpec
from common.data.own import list_classes, read_records
from simulations.cli import main

SPEC = DatasetSpec("own", (1, 16, 16), 3, (0.5,), (0.5,), ())
COLOR = DatasetSpec("own", (3, 16, 20), 2, (0.5,) * 3, (0.5,) * 3, ())


def npz(tmp_path, x, y, **more):
    path = tmp_path / "records.npz"
    np.savez(path, x=x, y=y, **more)
    return path


def read(path, spec=SPEC):
    return read_records(path, spec, list_classes(path, spec))


@pytest.mark.parametrize("shape", [(5, 16, 16), (5, 1, 16, 16), (5, 16, 16, 1)])
def test_npz_in_any_usual_layout(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    records = read(npz(tmp_path, pixels, np.arange(5) % 3))
    assert records.images.shape == (5, 1, 16, 16)
    assert np.allclose(records.images.ravel(), pixels.ravel() / 255)
    assert records.labels.tolist() == [0, 1, 2, 0, 1]


def test_npz_of_floats_is_taken_as_it_is(tmp_path):
    x = np.random.default_rng(0).random((4, 3, 16, 20))
    assert np.allclose(read(npz(tmp_path, x, np.array([0, 1, 1, 0], np.uint8)), COLOR).images, x)


GOOD = np.zeros((4, 16, 16), np.float32)
LABELS = np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("x", "y", "named"),
    [
        (GOOD[:, :15], LABELS, r"x must have shape"),
        (GOOD[:0], LABELS[:0], r"x must have shape"),
        (GOOD.astype(np.int32), LABELS, r"x must be uint8"),
        (GOOD, LABELS.astype(float), r"y must be 4 integers"),
        (GOOD, LABELS[:3], r"y must be 4 integers"),
    ],
)
def test_bad_arrays_are_refused_by_name(tmp_path, x, y, named):
    with pytest.raises(DataError, match=named):
        read(npz(tmp_path, x, y))


@pytest.mark.parametrize(
    ("x", "y", "problems"),
    [
        (GOOD + 1.5, LABELS, [f"row {row}: a value of x outside [0, 1]" for row in range(4)]),
        (np.where(np.arange(4)[:, None, None] == 2, np.nan, GOOD), LABELS, ["row 2: a value of x outside [0, 1]"]),
        (GOOD, np.array([0, 1, 3, 0]), ["row 2: label 3 is not from 0 to 2"]),
        (GOOD, np.array([0, -1, 1, 0]), ["row 1: label -1 is not from 0 to 2"]),
    ],
)
def test_a_record_that_cannot_be_used_is_no_reason_to_refuse(tmp_path, x, y, problems):
    """Whether a holder takes part must not depend on one record: it becomes a record without content."""
    records = read(npz(tmp_path, x, y))
    assert list(records.problems) == problems
    bad = [int(problem.split()[1][:-1]) for problem in problems]
    assert np.isnan(records.images[bad]).all()
    assert not records.labels[bad].any()
    good = [row for row in range(4) if row not in bad]
    assert np.array_equal(records.images[good], x[good, None])
    assert records.labels[good].tolist() == y[good].tolist()


def test_other_files_are_refused(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 truncated")
    np.savez(tmp_path / "names.npz", images=GOOD, labels=LABELS)
    np.savez(tmp_path / "objects.npz", x=np.array([object()]), y=LABELS)
    for name, named in (("bad.npz", "cannot be read"), ("names.npz", "x and y"), ("objects.npz", "cannot be read")):
        with pytest.raises(DataError, match=named):
            read(tmp_path / name)
    with pytest.raises(DataError, match=r"\.npz file or a folder"):
        read(tmp_path / "nothing")


@pytest.fixture
def tree(tmp_path):
    """Two records of class b, one of a, one of c: gray images of constant brightness."""
    root = tmp_path / "tree"
    for name, value in (("b/1.png", 10), ("b/2.png", 20), ("a/9.png", 30), ("c/0.png", 40)):
        picture(root / name, value)
    return root


def picture(path, value, size=(16, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)


def values(records):
    return [round(255 * float(image.mean())) for image in records.images]


def test_image_folder(tree):
    records = read(tree)
    assert values(records) == [30, 10, 20, 40]
    assert records.labels.tolist() == [0, 1, 1, 2]


def test_numbered_class_folders_need_not_be_complete(tmp_path):
    """Two holders with different classes must agree on the labels."""
    picture(tmp_path / "t" / "2" / "x.png", 5)
    assert read(tmp_path / "t").labels.tolist() == [2]
    picture(tmp_path / "u" / "malign" / "x.png", 5)
    with pytest.raises(DataError, match="class folders named 0 to 2, or exactly num-classes"):
        read(tmp_path / "u")


def test_a_bad_image_is_a_record_without_content(tree):
    (tree / "b" / "2.png").write_bytes(b"\x89PNG no")
    records = read(tree)
    assert len(records.problems) == 1 and records.problems[0].startswith("b/2.png: ")
    assert np.isnan(records.images[2]).all() and not np.isnan(records.images[[0, 1, 3]]).any()
    assert records.labels.tolist() == [0, 1, 0, 2]
    picture(tree / "b" / "2.png", 1, size=(17, 16))
    assert read(tree).problems == ("b/2.png: must be 16 x 16 pixels, has 17 x 16",)


def test_check_names_every_such_record_and_writes_nothing(tree, capsys):
    (tree / "b" / "2.png").write_bytes(b"\x89PNG no")
    before = sorted(tree.parent.rglob("*"))
    assert main(["data", "check", str(tree), "--image-shape", "1,16,16", "--num-classes", "3"]) == 1
    assert "b/2.png: " in (shown := capsys.readouterr().out)
    assert "4 records, 3 of them usable" in shown
    assert sorted(tree.parent.rglob("*")) == before
    picture(tree / "b" / "2.png", 20)
    assert main(["data", "check", str(tree), "--image-shape", "1,16,16", "--num-classes", "3"]) == 0


def test_what_a_parser_raises_is_named_whatever_it_is(tree, tmp_path):
    """Found by fuzzing: NumPy's zip reader raises NotImplementedError for a version, Pillow SyntaxError for a chunk."""
    path = npz(tmp_path, GOOD, LABELS)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 6] = 255
    path.write_bytes(raw)
    with pytest.raises(DataError, match="cannot be read"):
        read(path)
    picture = bytearray((tree / "b" / "2.png").read_bytes())
    picture[picture.index(b"IDAT") : picture.index(b"IDAT") + 4] = b"\x00\x00\x00I"
    (tree / "b" / "2.png").write_bytes(picture)
    assert np.isnan(read(tree).images[2]).all()
