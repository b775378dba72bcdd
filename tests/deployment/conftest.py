"""Settings of a small federation of four real processes on real MNIST."""

import pytest

from deployment.layout import Layout
from deployment.session import node_config


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    return Layout(tmp_path_factory.mktemp("deployment") / "deploy")


@pytest.fixture
def four(tiny, layout):
    """Three participating nodes and one future one."""

    def make(**changes):
        options = dict(
            num_participating=3,
            num_future=1,
            num_rounds=5,
            evaluate_every=0,
            out_dir=str(layout.local / "results"),
            run_name="parity",
        )
        return tiny(**(options | changes))

    return make


@pytest.fixture
def start_nodes():
    """Register and start nodes of a federation."""

    def start(federation, settings, nodes, **config):
        for node in nodes:
            federation.register(node)
            federation.add_node(node, {**node_config(settings, node), "allow-deterministic": True, **config})

    return start
