"""Which URLs name an endpoint."""

from __future__ import annotations

import pytest

from engine.core.errors import Refused
from engine.egress.destination import Destination

SECRET = "sesame"

BROKEN = [
    "",
    "https:h.example",
    "//h.example/",
    "ftp://h.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://",
    "https:///path",
    "https://h.example/#",
    "https://h.example/#part",
    "https://user@h.example/",
    f"https://user:{SECRET}@h.example/",
    "https://@h.example/",
    "https://h.example:0/",
    "https://h.example:65536/",
    "https://h.example:/",
    "https://h.example:1_0/",
    "https://h.example:٤٤٣/",
    "https://h.example:443:443/",
    "https://h.example:" + "9" * 900,
    "https://h.example/\n",
    "https://h.example\r\nHost: x/",
    "https://h.exa mple/",
    "https://h.example/a b",
    "https://h.example/\x00",
    "https://h.example/\u2028",
    "https://h.example/\ud800",
    "https://h.example\\@x.example/",
    "https://h%2eexample/",
    "https://h.example./",
    "https://h..example/",
    "https://-h.example/",
    "https://" + "a" * 64 + ".example/",
    "https://" + "abcdefgh." * 29 + "example/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0177.0.0.1/",
    "https://h.example.0x1/",
    "https://256.1.1.1/",
    "https://１２７.0.0.1/",
    "https://[::1/",
    "https://[::1]x/",
    "https://[v1.fe]/",
    "https://[fe80::1%25eth0]/",
    "https://h.example/" + "x" * 2048,
]


@pytest.mark.parametrize("url", BROKEN)
@pytest.mark.parametrize("allow_private", [False, True])
def test_a_url_that_could_be_read_in_two_ways_or_none_is_refused(url: str, allow_private: bool) -> None:
    with pytest.raises(Refused) as refusal:
        Destination.parse(url, allow_private=allow_private)
    assert refusal.value.category == "invalid_destination"
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("https://h.example", "https://h.example", "/"),
        ("HTTPS://H.Example:443/In?k=v", "https://h.example", "/In?k=v"),
        ("https://h.example:8443/a/../b", "https://h.example:8443", "/b"),
        ("https://h.example?to=a@b", "https://h.example", "/?to=a@b"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example", "/%C3%A4"),
        ("https://h。example/", "https://h.example", "/"),
        ("https://127。0。0。1/", "https://127.0.0.1", "/"),
        ("https://1.1.1.1:9/", "https://1.1.1.1:9", "/"),
        ("https://[2606:4700::1]:9/", "https://[2606:4700::1]:9", "/"),
        ("https://h.example/%0d%0aX", "https://h.example", "/%0d%0aX"),
    ],
)
def test_a_url_is_taken_apart_once(url: str, origin: str, target: str) -> None:
    destination = Destination.parse(url)
    assert (str(destination), destination.target) == (origin, target)


@pytest.mark.parametrize("url", ["http://h.example/", "http://10.0.0.1/", "http://[::1]:8080/"])
def test_http_is_taken_only_where_private_egress_is_allowed(url: str) -> None:
    with pytest.raises(Refused, match="https"):
        Destination.parse(url)
    assert Destination.parse(url, allow_private=True).scheme == "http"


@pytest.mark.parametrize("url", ["http://1.1.1.1/", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/"])
def test_http_to_an_address_that_is_not_private_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="https"):
        Destination.parse(url, allow_private=True)


def test_a_destination_does_not_show_its_path_and_query() -> None:
    destination = Destination.parse(f"https://h.example/{SECRET}?key={SECRET}")
    assert SECRET not in repr(destination)
    assert SECRET not in str(destination)
