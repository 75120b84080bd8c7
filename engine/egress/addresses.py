"""Which IP addresses may be reached: a deny list of our own; `ipaddress.is_global` is none (STACK.md, trap 19).

Three kinds of address:
- public: the open internet;
- private: RFC 1918, loopback, CGNAT, ULA. Reached only where the operator and the subscription both allow it;
- never: metadata services, link-local, multicast, unspecified, reserved, and every form of IPv6 that carries an IPv4
  address inside (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP): lifecycle.md, decision 8, refuses
  these forms whole, whatever they carry, so nothing has to be unpacked correctly for the rule to hold.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_PRIVATE_4 = [
    IPv4Network("10.0.0.0/8"),  # RFC 1918
    IPv4Network("100.64.0.0/10"),  # CGNAT, RFC 6598
    IPv4Network("127.0.0.0/8"),  # loopback
    IPv4Network("172.16.0.0/12"),  # RFC 1918
    IPv4Network("192.168.0.0/16"),  # RFC 1918
]

_NEVER_4 = [
    IPv4Network("0.0.0.0/8"),  # this network; 0.0.0.0 reaches the host itself on Linux
    IPv4Network("100.100.100.200/32"),  # metadata of Alibaba Cloud, inside CGNAT
    IPv4Network("168.63.129.16/32"),  # platform address of Azure, inside the public range
    IPv4Network("169.254.0.0/16"),  # link-local, and the metadata services of most clouds
    IPv4Network("192.0.0.0/24"),  # IETF protocol assignments; 192.0.0.192 is the metadata service of Oracle
    IPv4Network("192.0.2.0/24"),  # documentation
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("198.18.0.0/15"),  # benchmarking
    IPv4Network("198.51.100.0/24"),  # documentation
    IPv4Network("203.0.113.0/24"),  # documentation
    IPv4Network("224.0.0.0/4"),  # multicast
    IPv4Network("240.0.0.0/4"),  # reserved, with broadcast
]

_PRIVATE_6 = [
    IPv6Network("::1/128"),  # loopback
    IPv6Network("fc00::/7"),  # unique local
]

_NEVER_6 = [
    IPv6Network("fd00:ec2::/32"),  # metadata and other link services of AWS, inside ULA
    IPv6Network("fd20:ce::/32"),  # metadata of Google Cloud, inside ULA
    IPv6Network("2001::/23"),  # IETF protocol assignments: Teredo, benchmarking, ORCHID
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4
    IPv6Network("3fff::/20"),  # documentation
]

_UNICAST_6 = IPv6Network("2000::/3")
"""All global unicast space there is. What lies outside is mapped, compatible, translated, NAT64 (64:ff9b::/96 and
64:ff9b:1::/48), discard-only, SRv6, link-local, site-local, multicast or not assigned."""

_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""The upper half of an ISATAP interface identifier; the lower half is an IPv4 address."""


def is_public(address: str) -> bool:
    """Whether `address`, a literal, lies in the open internet. False for text that is no address."""
    return _kind(address) == "public"


def is_private(address: str) -> bool:
    """Whether `address`, a literal, is private and may be reached where private egress is allowed."""
    return _kind(address) == "private"


def may_reach(address: str, *, allow_private: bool) -> bool:
    """Whether a connection to `address` may be opened."""
    kind = _kind(address)
    return kind == "public" or (allow_private and kind == "private")


def _kind(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        return "never"
    return _kind_4(address) if isinstance(address, IPv4Address) else _kind_6(address)


def _kind_4(address: IPv4Address) -> str:
    if any(address in network for network in _NEVER_4):
        return "never"
    return "private" if any(address in network for network in _PRIVATE_4) else "public"


def _kind_6(address: IPv6Address) -> str:
    if address.scope_id is not None or any(address in network for network in _NEVER_6):
        return "never"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "never"
    if any(address in network for network in _PRIVATE_6):
        return "private"
    return "public" if address in _UNICAST_6 else "never"
