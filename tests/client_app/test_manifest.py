"""Positions of own records: secret, uniformly random, and known by content."""

import collections
import itertools
import json
import stat

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from client_app import manifest
from client_app.manifest import frozen_records, read_manifest
from common.context import ContextMap
from common.data.cache import DataError
from common.data.catalog import DatasetSpec

SPEC = DatasetSpec("own", (1, 16, 16), 3, (0.5,), (0.5,), ())


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 16), value).save(path)


@pytest.fixture
def tree(tmp_path):
    """Forty gray images of constant brightness in three classes."""
    root = tmp_path / "tree"
    for number in range(40):
        picture(root / "abc"[number % 3] / f"{number}.png", number)
    return root


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def npz(path, brightness, labels):
    np.savez(path, x=np.repeat(np.uint8(brightness), 256).reshape(-1, 16, 16), y=labels)


def values(records):
    return [round(255 * float(image.mean())) for image in records.images]


def test_the_order_is_uniformly_random(monkeypatch):
    """All 24 orders of four records are drawn equally often: chi-square at 1e-9 over 2,400 draws. In 0.1.0 the order was
    that of the names, so one record decided where others stood."""
    counts = collections.Counter(tuple(manifest._permutation(4)) for _ in range(2400))
    assert set(counts) == set(itertools.permutations(range(4)))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-9


def test_freezing_takes_the_drawn_order_and_keeps_it(tree, state, monkeypatch):
    order = list(range(39, -1, -1))
    monkeypatch.setattr(manifest, "_permutation", lambda count: order[:count])
    first = frozen_records(tree, SPEC, state)
    assert values(first) == [int(name) for name in reversed(sorted_names(tree))]
    monkeypatch.undo()
    again = frozen_records(tree, SPEC, state)
    assert np.array_equal(first.images, again.images)
    assert np.array_equal(first.labels, again.labels)
    assert first.order == again.order
    assert stat.S_IMODE((state / "manifest.json").stat().st_mode) == 0o600


def sorted_names(tree):
    return [file.stem for file in sorted(tree.rglob("*.png"))]


def test_two_holders_of_the_same_records_have_different_orders(tree, tmp_path):
    """Forty records: equal by chance once in 10^47."""
    one, two = (frozen_records(tree, SPEC, tmp_path / name) for name in ("one", "two"))
    assert values(one) != values(two)
    assert one.order != two.order


def test_one_changed_label_moves_no_other_record(tree, state):
    """The file goes to another class folder and so to another place in the folder's listing. In 0.1.0 all records in between
    moved, and with them the context, which uses no labels, by 111 times its sensitivity."""
    before = frozen_records(tree, SPEC, state)
    (tree / "a" / "0.png").rename(tree / "c" / "zzz.png")
    after = frozen_records(tree, SPEC, state)
    assert values(before) == values(after)
    assert (before.labels != after.labels).sum() == 1
    assert before.order == after.order
    phi = ContextMap(SPEC.image_shape)
    assert np.array_equal(phi.phi(before.images[:20]), phi.phi(after.images[:20]))


def test_relabelled_records_stay_and_twins_do_not_swap(tmp_path, state):
    """Two records of one image and different labels, in another order each time; then one is relabelled."""
    path = tmp_path / "d.npz"
    npz(path, [7, 7, 8, 9], [0, 1, 0, 0])
    first = frozen_records(path, SPEC, state)
    npz(path, [9, 7, 8, 7], [0, 1, 0, 0])
    assert frozen_records(path, SPEC, state).labels.tolist() == first.labels.tolist()
    npz(path, [9, 7, 8, 7], [0, 2, 0, 0])
    last = frozen_records(path, SPEC, state)
    assert values(last) == values(first)
    assert last.labels.tolist() == [2 if label == 1 else label for label in first.labels]
    assert last.order == first.order


def test_a_record_that_replaces_another_takes_its_place(tree, state):
    before = frozen_records(tree, SPEC, state)
    picture(tree / "b" / "1.png", 200)
    after = frozen_records(tree, SPEC, state)
    place = values(before).index(1)
    assert values(after) == [200 if p == place else value for p, value in enumerate(values(before))]
    assert after.order == before.order
    assert len(read_manifest(state / "manifest.json").positions[place]) == 2


def test_reordered_rows_are_the_same_records(tmp_path, state):
    """In 0.1.0 a re-exported file was accepted without a word, with other records at every position."""
    path, labels = tmp_path / "d.npz", np.arange(30) % 3
    npz(path, np.arange(30), labels)
    before = frozen_records(path, SPEC, state)
    npz(path, np.arange(30)[::-1], labels[::-1])
    after = frozen_records(path, SPEC, state)
    assert values(before) == values(after)
    assert np.array_equal(before.labels, after.labels)
    assert before.order == after.order


def test_equal_records_keep_their_number_of_places(tmp_path, state):
    path = tmp_path / "d.npz"
    npz(path, [7, 7, 7, 9], [1, 1, 1, 2])
    before = frozen_records(path, SPEC, state)
    npz(path, [9, 7, 7, 7], [2, 1, 1, 1])
    assert values(frozen_records(path, SPEC, state)) == values(before)


def test_a_record_that_comes_back_elsewhere_makes_positions_incomparable(tmp_path, state, monkeypatch):
    """Its earlier place is taken: what it has spent there cannot be told from its new position."""
    path, labels = tmp_path / "d.npz", [0, 0, 0, 0]
    npz(path, [1, 2, 3, 4], labels)
    first = frozen_records(path, SPEC, state)
    npz(path, [9, 2, 3, 4], labels)
    second = frozen_records(path, SPEC, state)
    assert second.order == first.order
    npz(path, [9, 1, 3, 4], labels)  # 1 is back, in the place of 2
    third = frozen_records(path, SPEC, state)
    assert third.order != first.order
    assert values(third)[values(second).index(2)] == 1


def test_a_record_that_comes_back_to_its_own_place_does_not(tmp_path, state):
    path, labels = tmp_path / "d.npz", [0, 0, 0, 0]
    npz(path, [1, 2, 3, 4], labels)
    first = frozen_records(path, SPEC, state)
    npz(path, [8, 9, 3, 4], labels)
    frozen_records(path, SPEC, state)
    npz(path, [1, 2, 3, 4], labels)
    last = frozen_records(path, SPEC, state)
    assert values(last) == values(first)
    assert last.order == first.order


def test_records_without_content_are_never_taken_for_one_that_moved(tmp_path, state):
    path, labels = tmp_path / "d.npz", np.array([0, 0, 0, 0])
    npz(path, [1, 2, 3, 4], labels)
    first = frozen_records(path, SPEC, state)
    npz(path, [1, 2, 3, 4], np.array([0, 0, 9, 0]))
    assert frozen_records(path, SPEC, state).order == first.order
    npz(path, [1, 2, 3, 4], np.array([9, 0, 9, 0]))
    again = frozen_records(path, SPEC, state)
    assert again.order == first.order
    assert np.isnan(again.images).all(axis=(1, 2, 3)).tolist() == [value in (1, 3) for value in values(first)]


@pytest.mark.parametrize("change", ["added", "gone"])
def test_another_number_of_records_needs_a_new_manifest(tree, state, change):
    first = frozen_records(tree, SPEC, state)
    if change == "added":
        picture(tree / "a" / "new.png", 100)
    else:
        (tree / "a" / "0.png").unlink()
    with pytest.raises(DataError, match=r"the 40 records of .*manifest\.json, or as many others\. Received (41|39)"):
        frozen_records(tree, SPEC, state)
    (state / "manifest.json").unlink()
    assert frozen_records(tree, SPEC, state).order != first.order


def test_a_manifest_of_0_1_0_gets_a_secret_order(tree, state):
    """Its order followed the names. Its classes stay: labels must not change."""
    state.mkdir()
    names = sorted(file.relative_to(tree).as_posix() for file in tree.rglob("*.png"))
    content = {"names": names, "classes": ["c", "b", "a"], "count": len(names)}
    (state / "manifest.json").write_text(json.dumps(content))
    records = frozen_records(tree, SPEC, state)
    assert values(records) != [int(name.split("/")[1][:-4]) for name in names]
    assert dict(zip(values(records), records.labels, strict=True)) == {number: 2 - number % 3 for number in range(40)}
    assert frozen_records(tree, SPEC, state).order == records.order


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"a"', '"x"'),
        lambda text: text.replace('"version": 2', '"version": 3'),
        lambda text: '{"names": [], "classes": [1], "count": 4}',
        lambda text: "[]",
    ],
)
def test_a_damaged_manifest_is_not_replaced(tree, state, change):
    frozen_records(tree, SPEC, state)
    damaged = change((state / "manifest.json").read_text())
    (state / "manifest.json").write_text(damaged)
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        frozen_records(tree, SPEC, state)
    assert (state / "manifest.json").read_text() == damaged
