"""What HTTP itself asks of answers."""

from __future__ import annotations

import pytest

from tests.calling import Api, problem
from tests.everything import everything


@pytest.mark.parametrize(
    ("path", "offered"),
    [
        ("/users", "GET, POST"),
        ("/users/x", "GET, PATCH"),
        ("/workflows/validate", "POST"),  # though a workflow's address has the same form
        ("/role-assignments/x", "DELETE, GET, PATCH"),
    ],
)
def test_the_refusal_names_all_that_the_address_offers(api: Api, path: str, offered: str) -> None:
    for method in ("OPTIONS", "PUT", "TRACE"):
        refused = api.call(method, path)
        problem(refused, 405, "method_not_allowed")
        assert refused.headers["allow"] == offered, method


def test_it_needs_no_token_to_be_told(api: Api) -> None:
    problem(api.with_token(None).call("PUT", "/users"), 405, "method_not_allowed")


def test_what_has_no_content_has_no_type_of_content(api: Api) -> None:
    deleted = api.delete(f"/role-assignments/{everything(api.realm).assignment_id}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert "content-type" not in deleted.headers
