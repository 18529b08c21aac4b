import pytest

import xlm.training.network as network
from xlm.errors import UserError
from xlm.training.network import name_interface

TWO = {"lo": "127.0.0.1", "eth0": "10.0.0.5", "ib0": "192.168.7.5"}


@pytest.fixture
def host(monkeypatch):
    """A host with these interfaces that sees the first rank from this address."""

    def of(addresses, source):
        for variable in network.VARIABLES:
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        monkeypatch.setattr(network, "_addresses", lambda: addresses)
        monkeypatch.setattr(network, "_source_address", lambda host, port: source)

    return of


def test_the_interface_that_leads_to_the_first_rank_is_named_to_gloo_and_nccl(host, monkeypatch):
    host(TWO, "192.168.7.5")
    assert name_interface("first", 1) == "192.168.7.5"
    assert [network.os.environ[variable] for variable in network.VARIABLES] == ["ib0", "ib0"]


def test_a_name_that_points_to_the_host_itself_is_seen_through_where_there_is_one_other_network(host):
    host({"lo": "127.0.0.1", "eth0": "10.0.0.5"}, "127.0.1.1")
    assert name_interface("myself", 1) == "10.0.0.5"
    assert network.os.environ["GLOO_SOCKET_IFNAME"] == "eth0"
    host(TWO, "127.0.1.1")
    with pytest.raises(UserError, match=r"set GLOO_SOCKET_IFNAME .* to one of eth0 \(10.0.0.5\), ib0 \(192.168.7.5\)"):
        name_interface("myself", 1)


def test_the_users_interface_stays_and_has_to_exist(host, monkeypatch):
    host(TWO, "10.0.0.5")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert name_interface("first", 1) == "192.168.7.5"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    with pytest.raises(UserError, match=r"GLOO_SOCKET_IFNAME is 'eth7', but this host has eth0 \(10.0.0.5\)"):
        name_interface("first", 1)


def test_an_address_that_leads_nowhere_is_a_sentence():
    with pytest.raises(UserError, match=r"'no.such.host.invalid' \(MASTER_ADDR\) leads nowhere"):
        network._source_address("no.such.host.invalid", 1)
    assert network._source_address("127.0.0.1", 1) == "127.0.0.1"
