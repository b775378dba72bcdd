"""Who may take part, and what a run records of those who do."""

import io

import pytest
from flwr.app import ConfigRecord
from rich.console import Console

from client_app.app import app
from server_app import app as server
from server_app.federation import FederationError
from server_app.results import RunFolder
from simulations.display import show_summary
from simulations.grid import InProcessGrid


def rows(settings):
    return RunFolder(settings).read_metrics()


def test_one_holder_under_two_numbers_ends_the_run_before_anything_is_spent(tiny):
    """A copied state directory: its records would pay twice, and each number's epsilon would look kept."""
    settings = tiny(deterministic=False)
    grid = InProcessGrid(app, settings)
    one, two = grid.contexts[1000 + 7], grid.contexts[1000 + 7 * 3]
    one.state.config_records["key"] = two.state.config_records["key"] = ConfigRecord({"private": bytes(range(32))})
    with pytest.raises(FederationError, match="clients 1, 3 have one key"):
        server.run(grid, settings)
    assert not RunFolder(settings).journal.exists()


@pytest.mark.parametrize("whose", ["the run's", "a client's"])
def test_lengths_and_times_are_recorded_only_where_diagnostics_are_shared(tiny, whose):
    """LRSUQ's lengths are functions of un-noised updates. In 0.1.0 they were recorded all the same."""
    settings = tiny(channel="lrsuq", diagnostics="off" if whose == "the run's" else "public-data")
    nodes = {} if whose == "the run's" else {client: {"diagnostics": "off"} for client in range(6)}
    summary = server.run(InProcessGrid(app, settings, node_configs=nodes), settings)
    for row in rows(settings):
        assert not {"message_bytes", "payload_bytes", "bits_per_coordinate", "seconds"} & set(row)
        assert not [key for key in row if key.endswith("_ms")]
    assert summary["uplink"] == {
        "messages": 8, "message_bytes": None, "payload_bytes": None, "bits_per_coordinate": None
    }  # fmt: skip
    assert summary["seconds"] is None
    show_summary(summary, Console(file=io.StringIO()))
