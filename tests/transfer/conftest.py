"""The server that the tests of record stores share."""

import pytest


@pytest.fixture(scope="session")
def _cluster():
    from tests.transfer.cluster import Cluster

    made = Cluster()
    yield made
    made.remove()


@pytest.fixture
def cluster(_cluster):
    """A PostgreSQL server without a record store; tests that take it are marked `postgresql`."""
    _cluster.empty()
    return _cluster
