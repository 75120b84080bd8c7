"""Which addresses may be reached, and which never."""

from __future__ import annotations

import pytest

from engine.egress.addresses import is_private, is_public, may_reach

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0"),
    *(
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "169.253.255.255",
        "11.0.0.0",
        "126.255.1.1",
    ),
    *("2606:4700:4700::1111", "2a00:1450:4001:81c::200e", "2001:4860:4860::8888", "2400:cb00::1"),
]
PRIVATE = [
    *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1", "127.255.255.254"),
    *("100.64.0.1", "100.127.255.255", "::1", "fc00::1", "fd12:3456:789a::1"),
]
NEVER = [
    *("169.254.169.254", "169.254.170.2", "169.254.0.1", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    *("0.0.0.0", "0.1.2.3", "::"),
    *("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),
    *("240.0.0.1", "255.255.255.255"),
    *("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
    *("2001:db8::1", "3fff::1", "2001:2::1", "100::1", "5f00::1", "4000::1"),
    *("fe80::1", "fe80::1%eth0", "fec0::1", "febf::1", "feff::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8"),
    *("::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::a00:1", "64:ff9b:1:ffff::1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::1", "2001:10::1", "2001:20::1"),
    *("2606:4700::5efe:7f00:1", "fd00::200:5efe:a00:1"),
    *("2606:4700:4700::1111%eth0", "", "localhost", "127.1", "2130706433", "0x7f000001", "1.1.1.1\n", "8.8.8.8/32"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    assert is_public(address)
    assert not is_private(address)
    assert may_reach(address, allow_private=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_reached_only_where_that_is_allowed(address: str) -> None:
    assert not is_public(address)
    assert is_private(address)
    assert not may_reach(address, allow_private=False)
    assert may_reach(address, allow_private=True)


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_are_never_reached(address: str) -> None:
    assert not is_public(address)
    assert not is_private(address)
    assert not may_reach(address, allow_private=True)
