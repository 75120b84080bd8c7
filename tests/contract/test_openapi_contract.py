"""The contract of the API is what the routes say, and each operation says all it may answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api import contract

DOCUMENT = json.loads(contract.CONTRACT.read_text())
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def test_the_contract_is_what_the_routes_say() -> None:
    assert contract.main(["--check"]) == 0


def test_a_contract_that_differs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "openapi.v1.json"
    changed.write_text(contract.CONTRACT.read_text().replace("Tenure", "Other", 1))
    monkeypatch.setattr(contract, "CONTRACT", changed)
    assert contract.main(["--check"]) == 1
    assert "python -m api.contract" in capsys.readouterr().err


def test_every_operation_has_a_name_of_its_own_a_summary_and_a_permission() -> None:
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(names) == len(set(names)) > 50
    for method, path, operation in OPERATIONS:
        assert operation["description"], f"{method} {path}"
        assert operation["x-permission"], f"{method} {path}"


def test_every_answer_that_is_no_success_is_a_problem() -> None:
    for method, path, operation in OPERATIONS:
        for status, answer in operation["responses"].items():
            if status >= "400":
                name = answer["$ref"].removeprefix("#/components/responses/")
                content = DOCUMENT["components"]["responses"][name]["content"]
                assert list(content) == ["application/problem+json"], f"{method} {path} {status}"
        if "/realms/" in path:
            assert {"401", "403", "404", "422", "500", "503"} <= set(operation["responses"]), f"{method} {path}"


def test_no_answer_shows_a_secret_but_those_that_make_one() -> None:
    shows = [
        operation["operationId"]
        for _, _, operation in OPERATIONS
        if "SubscriptionWithSecret" in json.dumps(operation["responses"])
    ]
    assert sorted(shows) == ["create_subscription", "rotate_secret"]
