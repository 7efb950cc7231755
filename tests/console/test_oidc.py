"""Signing in through a provider of the tests' own, which signs as real ones do."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.responses import RedirectResponse, Response

from postroad.testing import wait_until
from tests.fixtures.console import RunningConsole, end_part, start_part
from tests.fixtures.processes import free_port


@dataclass
class Provider:
    """Says yes to everybody, with the claims that a test wants."""

    url: str
    claims: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    signer: RSAKey | None = None
    nonces: dict[str, str] = field(default_factory=dict)
    challenge: str = ""
    is_away: bool = False

    def application(self) -> FastAPI:
        app = FastAPI()

        @app.get("/.well-known/openid-configuration")
        async def metadata() -> dict[str, str]:
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            }

        @app.get("/authorize")
        async def authorize(request: Request) -> Response:
            asked = request.query_params
            assert asked["code_challenge_method"] == "S256"
            self.nonces["a-code"] = asked["nonce"]
            self.challenge = asked["code_challenge"]
            return RedirectResponse(f"{asked['redirect_uri']}?code=a-code&state={asked['state']}")

        @app.post("/token")
        async def token(request: Request) -> dict[str, str]:
            given = parse_qs((await request.body()).decode())
            digest = hashlib.sha256(given["code_verifier"][0].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == self.challenge
            if self.is_away:
                raise HTTPException(503)
            claims = {
                "iss": self.url,
                "aud": "postroad",
                "sub": "4711",
                "exp": int(time.time()) + 60,
                "nonce": self.nonces[given["code"][0]],
                **self.claims,
            }
            header = {"alg": "RS256", "kid": "one"}
            signed = jwt.encode(header, claims, self.signer or self.key)
            return {"access_token": "x", "token_type": "Bearer", "id_token": signed}

        @app.get("/keys")
        async def keys() -> dict[str, Any]:
            return {"keys": [self.key.as_dict(private=False)]}

        return app


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    port = free_port()
    provider = Provider(f"http://127.0.0.1:{port}")
    server = uvicorn.Server(
        uvicorn.Config(provider.application(), port=port, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, what="the provider listens")
    yield provider
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def url(console: RunningConsole, provider: Provider) -> Iterator[str]:
    environment = {
        **console.environment,
        "POSTROAD_CONSOLE__OIDC__ISSUER": provider.url,
        "POSTROAD_CONSOLE__OIDC__CLIENT_ID": "postroad",
        "POSTROAD_CONSOLE__OIDC__CLIENT_SECRET": "a secret of tests",
    }
    process, answer = start_part("web", console.dsn, environment)
    yield answer["url"]
    end_part(process)


@contextmanager
def signing_in(url: str) -> Iterator[tuple[httpx.Response, httpx.Client]]:
    with httpx.Client(
        base_url=url, follow_redirects=True, headers={"accept": "text/html"}
    ) as client:
        yield client.get("/console/oidc/begin"), client


def test_the_claim_gives_the_role(url: str, provider: Provider, console: RunningConsole) -> None:
    provider.claims = {"preferred_username": "Maria", "postroad_role": ["viewer", "operator"]}
    with signing_in(url) as (answer, client):
        assert answer.status_code == 200
        assert urlsplit(str(answer.url)).path == "/console/"
        assert client.get("/console/audit").status_code == 403
    with psycopg.connect(console.dsn) as connection:
        row = connection.execute(
            "select role, password_hash from console.account where name = 'maria'"
        ).fetchone()
    assert row == ("operator", None)


def test_a_local_account_of_the_same_name_is_not_touched(
    url: str, provider: Provider, console: RunningConsole
) -> None:
    provider.claims = {"preferred_username": "Admin", "sub": "1", "postroad_role": "viewer"}
    with psycopg.connect(console.dsn) as connection:
        one = "select role, password_hash, issuer from console.account where name = 'admin'"
        before = connection.execute(one).fetchone()
        with signing_in(url) as (answer, client):
            assert answer.status_code == 403
            assert "admin belongs to another account" in answer.text
            assert client.get("/console/bus", headers={"accept": "*/*"}).status_code == 401
        assert connection.execute(one).fetchone() == before
        audit = connection.execute(
            "select outcome, detail ->> 'reason' from console.audit where account = 'admin'"
            " and detail ->> 'by' = 'oidc'"
        ).fetchall()
    assert audit == [("refused", "oidc_name_taken")]


def test_somebody_is_found_again_by_the_subject_and_not_by_the_name(
    url: str, provider: Provider, console: RunningConsole
) -> None:
    provider.claims = {"preferred_username": "zoe", "sub": "7", "postroad_role": "admin"}
    with signing_in(url) as (answer, _):
        assert answer.status_code == 200
    # She has another name by now, and somebody else has hers.
    provider.claims = {"preferred_username": "zoe2", "sub": "7", "postroad_role": "viewer"}
    with signing_in(url) as (answer, _):
        assert answer.status_code == 200
    provider.claims = {"preferred_username": "zoe", "sub": "8", "postroad_role": "viewer"}
    with signing_in(url) as (answer, _):
        assert answer.status_code == 403
    with psycopg.connect(console.dsn) as connection:
        found = connection.execute(
            "select name, role, issuer, subject from console.account where name like 'zoe%'"
        ).fetchall()
    assert found == [("zoe", "viewer", provider.url, "7")]


def test_an_account_of_the_provider_gets_no_password(
    url: str, provider: Provider, console: RunningConsole
) -> None:
    provider.claims = {"preferred_username": "olga", "sub": "9", "postroad_role": "viewer"}
    with signing_in(url):
        pass
    with (
        psycopg.connect(console.dsn) as connection,
        pytest.raises(psycopg.Error, match="belongs to the OpenID Connect provider"),
    ):
        connection.execute("select console.put_account('olga', 'admin', 'a hash')")


def test_a_name_that_cannot_be_one_is_refused_in_words(url: str, provider: Provider) -> None:
    provider.claims = {"preferred_username": "o'neil <b>", "sub": "10", "postroad_role": "viewer"}
    with signing_in(url) as (answer, _):
        assert answer.status_code == 403
        assert "is not a valid name here" in answer.text
        assert "<b>" not in answer.text


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "guest@example.org"},
        {"email": "guest@example.org", "postroad_role": "emperor"},
        {"postroad_role": "admin", "nonce": "another"},
        {"postroad_role": "admin", "aud": "another"},
        {"postroad_role": "admin", "iss": "https://another.example"},
        {"postroad_role": "admin", "exp": 1},
    ],
    ids=["no-role", "no-such-role", "nonce", "audience", "issuer", "expired"],
)
def test_who_cannot_be_believed_is_refused(
    url: str, provider: Provider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    with signing_in(url) as (answer, client):
        assert answer.status_code == 403
        assert client.get("/console/bus", headers={"accept": "*/*"}).status_code == 401


def test_a_token_signed_by_somebody_else_is_refused(url: str, provider: Provider) -> None:
    provider.claims = {"postroad_role": "admin"}
    provider.signer = RSAKey.generate_key(2048, {"kid": "one"})
    try:
        with signing_in(url) as (answer, _):
            pass
    finally:
        provider.signer = None
    assert answer.status_code == 403


def test_a_provider_that_gives_no_token_is_reported(url: str, provider: Provider) -> None:
    provider.claims, provider.is_away = {"postroad_role": "admin"}, True
    try:
        with signing_in(url) as (answer, _):
            pass
    finally:
        provider.is_away = False
    assert answer.status_code == 403
    assert "could not be verified" in answer.text


def test_an_answer_without_a_beginning_is_refused(url: str) -> None:
    assert httpx.get(f"{url}/console/oidc/end?code=a-code&state=x").status_code == 403
