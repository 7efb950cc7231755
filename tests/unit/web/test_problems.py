"""Failures of an application answer as problem+json."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.testclient import TestClient

from postroad.errors import PostroadError
from postroad.exchange.errors import MessageConflict
from postroad.web.application import prepare
from postroad.web.cursors import decode_cursor, encode_cursor
from postroad.web.errors import CursorInvalid, TokenMissing
from postroad.web.limits import BodyLimit
from postroad.web.pages import page_of
from postroad.web.problems import PROBLEM_MEDIA_TYPE
from postroad.web.tokens import bearer_token, hash_token, is_token_of, new_token


class Missing(PostroadError):
    """A leaf of another component, which knows nothing of HTTP."""

    code = "sample_missing"
    kind = "not_found"


class Order(BaseModel):
    amount: int


FAILURES: dict[str, Exception] = {
    "missing": Missing("no such thing", hint="make one"),
    "conflict": MessageConflict("other content"),
    "away": psycopg.OperationalError("secret connection string"),
    "bug": ValueError("secret inside"),
}


@pytest.fixture
def client() -> TestClient:
    app = prepare(FastAPI())

    @app.get("/fails/{name}")
    def fails(name: str) -> None:
        raise FAILURES[name]

    @app.post("/orders")
    def orders(order: Order) -> Order:
        return order

    @app.get("/token")
    def token(request: Request) -> str:
        return bearer_token(request)

    app.add_middleware(BodyLimit, limit_bytes=100)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("missing", 404, "sample_missing"),
        ("conflict", 409, "exchange_message_conflict"),
        ("away", 503, "database_unavailable"),
        ("bug", 500, "unforeseen"),
    ],
)
def test_each_failure_has_its_status_and_code(
    client: TestClient, name: str, status: int, code: str
) -> None:
    answer = client.get(f"/fails/{name}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert "secret" not in answer.text


def test_an_unavailable_database_says_when_to_come_back(client: TestClient) -> None:
    assert client.get("/fails/away").headers["retry-after"] == "1"


def test_a_hint_reaches_the_caller(client: TestClient) -> None:
    assert client.get("/fails/missing").json()["hint"] == "make one"


def test_a_refused_body_names_the_field_and_not_its_content(client: TestClient) -> None:
    answer = client.post("/orders", json={"amount": "s3cret"})
    problem = answer.json()
    assert answer.status_code == 422
    assert problem["errors"][0]["where"] == "body.amount"
    assert "s3cret" not in answer.text


def test_an_unknown_address_is_a_problem_too(client: TestClient) -> None:
    answer = client.get("/nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM_MEDIA_TYPE)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_above_the_limit_is_refused(client: TestClient, streamed: bool) -> None:
    body: Any = b'{"amount": ' + b"1" * 200 + b"}"
    answer = client.post("/orders", content=iter([body]) if streamed else body)
    assert (answer.status_code, answer.json()["code"]) == (413, "web_body_too_large")


def test_a_body_below_the_limit_passes(client: TestClient) -> None:
    assert client.post("/orders", json={"amount": 3}).json() == {"amount": 3}


@pytest.mark.parametrize("header", ["", "Basic x", "Bearer", "Bearer "])
def test_a_request_without_a_token_is_refused(client: TestClient, header: str) -> None:
    answer = client.get("/token", headers={"Authorization": header})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["code"] == TokenMissing.code


def test_a_token_belongs_to_its_own_hash_only(client: TestClient) -> None:
    token = new_token()
    assert client.get("/token", headers={"Authorization": f"Bearer {token}"}).json() == token
    assert is_token_of(token, hash_token(token))
    assert not is_token_of(new_token(), hash_token(token))


def test_a_cursor_comes_back_as_it_went() -> None:
    assert decode_cursor(encode_cursor(7, "a"), int, str) == (7, "a")


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!!", encode_cursor("7", "a"), encode_cursor(7), encode_cursor(True, "a")]
)
def test_a_foreign_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(CursorInvalid):
        decode_cursor(cursor, int, str)


def test_the_row_too_many_tells_that_there_is_a_next_page() -> None:
    page = page_of([1, 2, 3], 2, lambda row: (row,))
    assert page.items == [1, 2]
    assert page.cursor is not None
    assert decode_cursor(page.cursor, int) == (2,)
    assert page_of([1, 2], 2, lambda row: (row,)).cursor is None


@pytest.mark.parametrize("failure", [psycopg.DataError("NUL"), psycopg.errors.CheckViolation("no")])
def test_a_value_that_the_database_refuses_is_the_fault_of_the_request(failure: Exception) -> None:
    app = FastAPI()

    @app.get("/")
    def fail() -> None:
        raise failure

    with TestClient(prepare(app), raise_server_exceptions=False) as client:
        answer = client.get("/")
        assert (answer.status_code, answer.json()["code"]) == (422, "web_request_invalid")


def test_the_documentation_needs_no_other_site() -> None:
    app = prepare(
        FastAPI(title="Postroad <x>", docs_url="/v1/docs", openapi_url="/v1/openapi.json")
    )
    with TestClient(app) as client:
        page = client.get("/v1/docs")
        assert "http" not in page.text
        assert "&lt;x&gt;" in page.text
        assert "unsafe-eval" not in page.headers["content-security-policy"]
        for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert client.get(name).status_code == 200, name
        assert "/v1/openapi.json" in client.get("/v1/docs/start.js").text
        assert client.get("/v1/docs/other.js").status_code == 404
        assert list(client.get("/v1/openapi.json").json()["paths"]) == []
