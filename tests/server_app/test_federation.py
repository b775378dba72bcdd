"""A federation that is not complete: who is missing, by number, before anything is released."""

import pytest

from client_app.app import app
from server_app import app as server
from server_app.federation import FederationError
from server_app.results import RunFolder
from simulations.grid import InProcessGrid


class Partial(InProcessGrid):
    """Some of the clients of a run."""

    def __init__(self, settings, clients, late=()):
        super().__init__(app, settings, max([*clients, *late]) + 1)
        self._here = {1000 + 7 * client for client in clients}
        self._late = {1000 + 7 * client for client in late}
        self.asked = []

    def get_node_ids(self):
        return sorted(self._here)

    def send_and_receive(self, messages, *, timeout=None):
        self._here |= self._late
        messages = list(messages)
        self.asked += [(message.metadata.message_type, timeout) for message in messages]
        return super().send_and_receive(messages, timeout=timeout)


def test_a_missing_node_is_named_by_its_number(tiny):
    settings = tiny(federation_timeout=0.1)
    grid = Partial(settings, [0, 1, 3, 5])
    with pytest.raises(
        FederationError, match=r"ids 0 to 5\. Received 4 clients\. Missing \[2, 4\]\. In a deployment, start"
    ) as error:
        server.run(grid, settings)
    assert "num-supernodes=6" in str(error.value)  # and the way out where it is a simulation
    # Nothing but a hello was asked for, and a node that hangs would not have been waited for.
    assert set(grid.asked) == {("query.hello", 0.1)}
    assert not RunFolder(settings).journal.exists()


def test_nobody_there(tiny):
    settings = tiny(federation_timeout=0.1, num_participating=12)
    with pytest.raises(FederationError, match=r"Received 0 clients\. Missing \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\]\.\.\."):
        server.run(Partial(settings, [], late=range(14)), settings)


def test_one_too_many_is_named(tiny):
    settings = tiny(federation_timeout=0.1)
    with pytest.raises(FederationError, match=r"Received 6 clients\. .*refused \(SETTINGS\)"):
        server.run(Partial(settings, range(7)), settings)


def test_without_future_clients_the_participating_ones_must_be_there(tiny):
    settings = tiny(federation_timeout=0.1, require_future=False)
    with pytest.raises(FederationError, match=r"at least partition ids 0 to 3\. Received 4 clients\. Missing \[3\]"):
        server.run(Partial(settings, [0, 1, 2, 4], late=[]), settings)


def test_who_joins_while_the_others_are_greeted_is_missing_no_more(tiny):
    settings = tiny(federation_timeout=0.1)
    grid = Partial(settings, range(5), late=[5])
    with pytest.raises(FederationError, match=r"Missing \[5\]"):
        server.run(grid, settings)
    assert server.run(grid, settings)["failed_replies"] == 0
