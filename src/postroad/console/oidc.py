"""Signing in through OpenID Connect: the provider identifies the user, a claim gives the role.

```
/oidc/begin ──redirect──> provider ──/oidc/end?code──> token checked ──> session
   state, nonce, PKCE verifier: encrypted in a cookie that is valid for ten minutes
```

Such accounts are separate from local ones and are found by issuer and subject: they have no
password, and a local account of the same name is never changed. The role is set from the claim at
each login.
"""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

import httpx
from authlib.integrations.httpx_client import AsyncOAuth2Client
from fastapi import APIRouter, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from joserfc import jwt
from joserfc.jwk import KeySet
from starlette.responses import RedirectResponse, Response

from postroad.console.accounts import ROLES, Role
from postroad.console.catalogue import texts_of
from postroad.console.context import Context
from postroad.console.errors import AccountInvalid, NameTaken
from postroad.console.gate import PREFIX
from postroad.console.login import address_of, begin_session, login_page, record_refusal

logger = logging.getLogger(__name__)

COOKIE = "postroad_oidc"
LIFETIME_SECONDS = 600
LEEWAY_SECONDS = 30
ALGORITHMS = ["RS256", "ES256", "PS256"]


def oidc_router(context: Context) -> APIRouter:
    """Return the two routes of the login flow; none if no issuer is configured."""
    router = APIRouter(prefix=f"{PREFIX}/oidc", include_in_schema=False)
    settings = context.settings.oidc
    # Valid until the process ends: a login that a restart interrupts has to start again.
    serializer = URLSafeTimedSerializer(secrets.token_hex(32), salt="postroad-oidc")

    @router.get("/begin")
    async def begin(request: Request) -> Response:
        try:
            metadata = await _metadata(str(settings.issuer))
        except (httpx.HTTPError, ValueError) as failure:
            logger.warning("oidc_provider_away", extra={"reason": str(failure)})
            return await _refused(context, request, "login.oidc_away", status=503)
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        client = _client(context, request)
        url, state = client.create_authorization_url(
            metadata["authorization_endpoint"], nonce=nonce, code_verifier=verifier
        )
        answer = RedirectResponse(url, status_code=303)
        sealed = serializer.dumps({"state": state, "nonce": nonce, "verifier": verifier})
        answer.set_cookie(
            COOKIE,
            sealed,
            max_age=LIFETIME_SECONDS,
            path=f"{PREFIX}/oidc",
            httponly=True,
            samesite="lax",
            secure=_base(context, request).startswith("https:"),
        )
        return answer

    @router.get("/end")
    async def end(request: Request) -> Response:
        try:
            begun = serializer.loads(request.cookies.get(COOKIE, ""), max_age=LIFETIME_SECONDS)
        except BadSignature:
            return await _refused(context, request, "login.oidc_late")
        given = request.query_params.get("state", "")
        if not secrets.compare_digest(given.encode(), begun["state"].encode()):
            return await _refused(context, request, "login.oidc_other")
        try:
            claims = await _claims(context, request, begun)
            subject = str(claims["sub"])
        except Exception as failure:  # noqa: BLE001 - also the errors of authlib's HTTP client
            logger.warning("oidc_answer_refused", extra={"reason": str(failure)})
            return await _refused(context, request, "login.oidc_unbelievable")
        role = _role(claims.get(settings.role_claim), settings.role_default)
        name = str(claims.get("preferred_username") or claims.get("email") or subject).lower()
        if role is None:
            return await _refused(context, request, "login.oidc_no_role", name)
        try:
            account = await context.accounts.put_identity(str(claims["iss"]), subject, name, role)
        except NameTaken:
            return await _refused(context, request, "login.oidc_name_taken", name)
        except AccountInvalid:
            return await _refused(context, request, "login.oidc_name_invalid", name)
        lifetime = context.settings.session_lifetime
        session = await context.accounts.open(account, address_of(request), lifetime)
        by = {"by": "oidc"}
        answer = await begin_session(context, request, session, f"{PREFIX}/", by)
        answer.delete_cookie(COOKIE, path=f"{PREFIX}/oidc")
        return answer

    return router


def _client(context: Context, request: Request) -> Any:
    settings = context.settings.oidc
    secret = settings.client_secret
    return AsyncOAuth2Client(
        settings.client_id,
        secret.get_secret_value() if secret is not None else None,
        scope="openid profile email",
        code_challenge_method="S256",
        redirect_uri=f"{_base(context, request)}{PREFIX}/oidc/end",
    )


def _base(context: Context, request: Request) -> str:
    return (context.http.public_url or f"{request.url.scheme}://{request.url.netloc}").rstrip("/")


async def _metadata(issuer: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        found: dict[str, Any] = answer.raise_for_status().json()
    # Accounts are tied to the configured issuer, so the provider must report exactly that one.
    if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
        raise ValueError(f"{issuer} reports the issuer {found.get('issuer')!r}")
    return found


async def _claims(context: Context, request: Request, begun: dict[str, str]) -> dict[str, Any]:
    """Exchange the code and check the token: signature, issuer, audience, time, nonce."""
    settings = context.settings.oidc
    metadata = await _metadata(str(settings.issuer))
    async with _client(context, request) as client:
        token = await client.fetch_token(
            metadata["token_endpoint"],
            code=request.query_params["code"],
            code_verifier=begun["verifier"],
        )
    async with httpx.AsyncClient(timeout=10) as web:
        keys = (await web.get(metadata["jwks_uri"])).raise_for_status().json()
    claims = jwt.decode(
        token["id_token"], KeySet.import_key_set(keys), algorithms=ALGORITHMS
    ).claims
    jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": metadata["issuer"]},
        aud={"essential": True, "value": settings.client_id},
        exp={"essential": True},
        nonce={"essential": True, "value": begun["nonce"]},
    ).validate(claims)
    return dict(claims)


def _role(claim: object, default: Role | None) -> Role | None:
    if isinstance(claim, str):
        try:
            claim = json.loads(claim) if claim.startswith("[") else [claim]
        except ValueError:
            claim = [claim]
    named = claim if isinstance(claim, list) else []
    return next((role for role in reversed(ROLES) if role in named), default)


async def _refused(
    context: Context, request: Request, reason: str, name: str = "", status: int = 403
) -> Response:
    t, shown = texts_of(request), name.replace("\0", "")[:200]
    if name:
        detail = {"by": "oidc", "reason": reason.removeprefix("login.")}
        await record_refusal(context, request, name, detail)
    return login_page(context, t, error=t(reason, name=shown), status=status)
