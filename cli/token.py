"""`tenure token`: a token of the local issuer, for a machine on its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from api.issuer import LocalIssuer
from api.settings import LOCAL_ISSUER
from api.tokens import Audience
from engine.core.errors import Refused
from engine.core.ids import Prefix, is_id


def issue(
    data_dir: Path,
    realm_id: str,
    subject_id: str,
    audience: Audience = "admin",
    lifetime: timedelta = timedelta(hours=1),
    mfa: bool = True,
) -> str:
    """A token for a user or service principal of a realm, signed with the key in `data_dir` (made on first use), valid from now
    for `lifetime`.

    Whoever can read the data folder can be anybody: it is the machine's own. Raises Refused("secret_unavailable"), and
    Refused("validation_failed") for a token that could not count.
    """
    _check(realm_id, subject_id, audience)
    return LocalIssuer.load(data_dir, LOCAL_ISSUER).issue(realm_id, subject_id, audience, lifetime, mfa=mfa)


def _check(realm_id: str, subject_id: str, audience: Audience) -> None:
    is_machine = is_id(subject_id, Prefix.SERVICE_PRINCIPAL)
    if not is_id(realm_id, Prefix.REALM) or not (is_machine or is_id(subject_id, Prefix.USER)):
        rule = (
            "A token is for a realm (rlm_...) and a user (usr_...) or service principal (spn_...) of it, in that order."
        )
        raise Refused("validation_failed", rule)
    if is_machine and audience == "account":
        raise Refused("validation_failed", "A service principal has no account of its own: its tokens are for admin.")
