"""Which of this host's networks leads to the other ranks.

gloo listens where the host's own name points to, and on many systems that is the loopback address (Debian's 127.0.1.1):
other hosts then find nobody there, and everybody waits for the timeout. So the interface that leads to the first rank is
found here and named to gloo and NCCL, unless the user names one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping

import psutil

from xlm.errors import UserError

VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def name_interface(first_rank: str, port: int) -> str:
    """Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME where they are not, and return this host's address on that network.

    Raises UserError where ``first_rank`` (MASTER_ADDR) has no address, or nothing tells which network leads to it.
    """
    addresses = _addresses()
    chosen = os.environ.get(VARIABLES[0])
    if chosen is not None:
        address = addresses.get(chosen.split(",")[0])
        if address is None:
            raise UserError(f"GLOO_SOCKET_IFNAME is '{chosen}', but this host has {_listed(addresses)}; name one of them, or unset it.")
        return address
    interface, address = _towards(_source_address(first_rank, port), addresses)
    for variable in VARIABLES:
        os.environ.setdefault(variable, interface)
    return address


def _towards(source: str, addresses: Mapping[str, str]) -> tuple[str, str]:
    """Return the interface of ``source``, this host's address as the first rank sees it; beyond loopback if it can be told."""
    if not ipaddress.ip_address(source).is_loopback:
        for interface, address in addresses.items():
            if address == source:
                return interface, address
    # MASTER_ADDR is this host's own name, and that points to itself: other hosts come by another way.
    others = {interface: address for interface, address in addresses.items() if not ipaddress.ip_address(address).is_loopback}
    if len(others) == 1:
        return next(iter(others.items()))
    raise UserError(
        f"which network the other hosts use cannot be told from MASTER_ADDR, which is {source} on {socket.gethostname()}; "
        f"set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to one of {_listed(others)}, or give --master_addr an address of that network."
    )


def _source_address(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # sends nothing: asks the routing table
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"the first rank's address '{host}' (MASTER_ADDR) leads nowhere from {socket.gethostname()} ({error.strerror or error}); "
            "give --master_addr a name or address that every host knows."
        ) from None


def _addresses() -> dict[str, str]:
    """Return the IPv4 address (else the IPv6 one) of every interface that is up."""
    up = {name for name, of in psutil.net_if_stats().items() if of.isup}
    found: dict[str, str] = {}
    for wanted in (socket.AF_INET, socket.AF_INET6):
        for name, of in psutil.net_if_addrs().items():
            for address in of:
                if name in up and address.family == wanted and not address.address.startswith("fe80"):
                    found.setdefault(name, address.address)
    return found


def _listed(addresses: Mapping[str, str]) -> str:
    return ", ".join(f"{interface} ({address})" for interface, address in sorted(addresses.items())) or "no interface that is up"
