import numpy as np
import pytest

from common.data.splits import batch, is_future, split
from common.settings import Settings


def test_splits_are_the_papers_and_disjoint_from_evaluation():
    settings = Settings()
    member = split(settings, 0, 1000)
    assert (len(member.train), len(member.context), len(member.evaluation)) == (800, 333, 200)
    assert set(member.context) <= set(member.train)
    assert not set(member.train) & set(member.evaluation)
    future = split(settings, 40, 1000)
    assert is_future(settings, 40)
    assert (len(future.train), len(future.context), len(future.evaluation)) == (0, 333, 667)
    assert not set(future.context) & set(future.evaluation)


def test_splits_differ_by_client_and_seed():
    base = split(Settings(), 0, 1000).train
    assert not np.array_equal(base, split(Settings(), 1, 1000).train)
    assert not np.array_equal(base, split(Settings(seed=0), 0, 1000).train)


def test_uniform_batches_are_fresh_and_without_repetition():
    settings = Settings()
    train = split(settings, 3, 1000).train
    first, second = batch(settings, 3, 1, 0, train), batch(settings, 3, 2, 1, train)
    assert len(set(first)) == len(set(second)) == 333
    assert set(first) <= set(train)
    assert set(first) != set(second)
    assert np.array_equal(first, batch(settings, 3, 1, 0, train))


def test_cyclic_batches_walk_through_the_records():
    settings = Settings(batch_schedule="cyclic")
    train = split(settings, 3, 1000).train
    counts = np.bincount(np.concatenate([batch(settings, 3, 99, p, train) for p in range(8)]), minlength=1000)[train]
    assert counts.sum() == 8 * 333
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("client", "records"), [(0, 400), (40, 333)])
def test_too_few_records_are_refused(client, records):
    with pytest.raises(ValueError, match="records"):
        split(Settings(), client, records)
