"""The API as the story uses it: one person's calls, each answered or told in one sentence why not."""

from __future__ import annotations

from typing import Any

import httpx

from engine.core.errors import TenureError


class ApiRefused(TenureError):
    """The API answered with a problem."""


class Client:
    """Calls of one person in one realm."""

    def __init__(self, api: str, realm_id: str, token: str) -> None:
        self._http = httpx.Client(
            base_url=f"{api}/api/v1/realms/{realm_id}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
            trust_env=False,
        )

    def get(self, path: str, **query: str) -> Any:
        """GET, and the body."""
        return self._answer(self._http.get(path, params=query))

    def post(self, path: str, body: Any = None) -> Any:
        """POST, and the body, or None when there is none."""
        return self._answer(self._http.post(path, json=body) if body is not None else self._http.post(path))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @staticmethod
    def _answer(response: httpx.Response) -> Any:
        if response.is_success:
            return response.json() if response.content else None
        raise ApiRefused(
            f"{response.request.method} {response.request.url.path}: {response.status_code} {response.text}"
        )
