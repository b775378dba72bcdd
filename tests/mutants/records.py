"""Which records are where. See `tests.mutants.bug`."""

from tests.mutants.bug import Bug, bug

BUGS: tuple[Bug, ...] = (
    bug(
        "positions follow the order of files",
        "client_app/manifest.py",
        "return [int(index) for index in np.argsort(words)]",
        "return list(range(count))",
        "tests/client_app/test_manifest.py::test_the_order_is_uniformly_random",
    ),
    bug(
        "positions are drawn anew for every message",
        "client_app/manifest.py",
        "known = read_manifest(file) if file.exists() else None",
        "known = None",
        "tests/client_app/test_manifest.py::test_one_changed_label_moves_no_other_record",
    ),
    bug(
        "a record is known by its row",
        "client_app/manifest.py",
        "index = np.array([rows[held[-1]].pop() for held in manifest.positions])",
        "index = np.arange(len(digests))",
        "tests/client_app/test_manifest.py::test_reordered_rows_are_the_same_records",
    ),
    bug(
        "a record that moves leaves behind what it has paid",
        "client_app/manifest.py",
        "if elsewhere & set(map(_subject, new)) else known.order",
        "if False else known.order",
        "tests/client_app/test_own_records.py::test_a_record_that_moves_is_booked_at_whole_client_cost_and_the_run_ends_there",
    ),
    bug(
        "one bad record refuses everything",
        "common/data/own.py",
        "    return _without(images, y.astype(np.int64), wrong_value | wrong_label, problems)\n",
        "    if problems:\n        raise DataError(problems[0])\n"
        "    return _without(images, y.astype(np.int64), wrong_value | wrong_label, problems)\n",
        "tests/common/data/test_own.py::test_a_record_that_cannot_be_used_is_no_reason_to_refuse",
    ),
)  # fmt: skip
