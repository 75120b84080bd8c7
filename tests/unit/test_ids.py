"""Ids: made in order, and recognized letter for letter."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from engine.core import ids
from engine.core.ids import Prefix

# As printed in the contract of step calls that the source came with.
PRINTED = ["rlm_01jbxe2ktygrnsjxt1j8etsahj", "wfl_01jbh0ybgaravg3xcq0zdp2egd"]

ALIASES = {name: alias for name, alias in vars(ids).items() if name.endswith("Id") and name != "Id"}


def test_an_id_is_three_letters_and_a_lowercase_ulid() -> None:
    for prefix in Prefix:
        assert re.fullmatch(rf"{prefix.value}_[0-7][0-9a-hjkmnp-tv-z]{{25}}", ids.new(prefix))
        assert ids.is_id(ids.new(prefix), prefix)


def test_the_prefixes_are_those_of_the_specification_and_our_own_for_shifts() -> None:
    specified = "rlm org usr spn grp rol ras whk obx aud wfl wrv wrn wsa wap ntf whd"
    assert {prefix.value for prefix in Prefix} == {*specified.split(), "shf"}


def test_ids_of_one_process_sort_by_the_moment_they_were_made_and_never_repeat() -> None:
    made = [ids.new(Prefix.RUN) for _ in range(5000)]
    assert made == sorted(set(made))


def test_the_printed_examples_are_ids() -> None:
    for printed in PRINTED:
        assert ids.is_id(printed, Prefix(printed[:3]))
        assert not ids.is_id(printed, Prefix.USER)


@pytest.mark.parametrize(
    "value",
    [
        "rlm_01jbxe2ktygrnsjxt1j8etsahj\n",
        " rlm_01jbxe2ktygrnsjxt1j8etsahj",
        "RLM_01jbxe2ktygrnsjxt1j8etsahj",
        "rlm_01JBXE2KTYGRNSJXT1J8ETSAHJ",
        "rlm_81jbxe2ktygrnsjxt1j8etsahj",  # 131 bits
        "rlm_01jbxe2ktygrnsjxt1j8etsahi",  # i, l, o and u are no digits
        "rlm_01jbxe2ktygrnsjxt1j8etsahl",
        "rlm_01jbxe2ktygrnsjxt1j8etsaho",
        "rlm_01jbxe2ktygrnsjxt1j8etsahu",
        "rlm_01jbxe2ktygrnsjxt1j8etsah",
        "rlm_01jbxe2ktygrnsjxt1j8etsahjj",
        "rlm_٠1jbxe2ktygrnsjxt1j8etsahj",
        "rlm_",
        "",
        None,
        1,
        b"rlm_01jbxe2ktygrnsjxt1j8etsahj",
    ],
)
def test_what_only_looks_like_an_id_is_refused(value: object) -> None:
    assert not ids.is_id(value, Prefix.REALM)
    with pytest.raises(ValidationError):
        TypeAdapter(ids.RealmId).validate_python(value, strict=True)


def test_every_prefix_but_that_of_shifts_has_a_type_that_takes_its_ids_alone() -> None:
    adapters = [TypeAdapter[str](alias) for alias in ALIASES.values()]
    taken = {prefix: [adapter for adapter in adapters if _takes(adapter, ids.new(prefix))] for prefix in Prefix}
    assert {prefix: len(adapters) for prefix, adapters in taken.items()} == {
        prefix: 0 if prefix is Prefix.SHIFT else 1 for prefix in Prefix
    }


def test_a_type_says_its_pattern_in_json_schema() -> None:
    assert TypeAdapter[str](ids.RoleId).json_schema() == {
        "type": "string",
        "pattern": "^rol_[0-7][0-9a-hjkmnp-tv-z]{25}$",
    }


def _takes(adapter: TypeAdapter[str], value: str) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True
