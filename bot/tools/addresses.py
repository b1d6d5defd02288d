"""Allows tools public Internet addresses only, and no address that stands for another one."""

from __future__ import annotations

import ipaddress

_CLOSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # a cloud's own service, at a public address
            "::/8",
            "64:ff9b:1::/48",
            "100::/64",
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",
            "3fff::/20",
            "5f00::/16",
            "fc00::/7",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
        ),
    )
)
"""Networks that are private, of this machine, of this network, reserved, for many at once or carry an address of IPv4 (mapped,
6to4, Teredo). Listed, so that it is the same with every version of the interpreter.
"""
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix by which networks with IPv6 alone reach IPv4."""
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


def public(words: str) -> bool:
    """True if this is a public address, in the form in which a resolver gives it."""
    try:
        address = ipaddress.ip_address(words)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
        if address in _TRANSLATED:
            return public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
    return address.is_global and not any(
        address.version == network.version and address in network for network in _CLOSED
    )
