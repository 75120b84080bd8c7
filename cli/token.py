"""`tenure token`: a token of the local issuer, for a machine on its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from api.issuer import LocalIssuer
from api.settings import LOCAL_ISSUER
from api.tokens import Audience


def issue(
    data_dir: Path,
    realm_id: str,
    user_id: str,
    audience: Audience = "admin",
    lifetime: timedelta = timedelta(hours=1),
    mfa: bool = True,
) -> str:
    """A token for a user of a realm, signed with the key in `data_dir` (made on first use), valid from now for `lifetime`.

    Whoever can read the data folder can be anybody: it is the machine's own. Raises Refused("secret_unavailable").
    """
    return LocalIssuer.load(data_dir, LOCAL_ISSUER).issue(realm_id, user_id, audience, lifetime, mfa=mfa)
