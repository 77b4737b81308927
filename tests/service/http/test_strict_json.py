from typing import Annotated

import pytest
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from minutebook.service.access.api_keys import Caller
from minutebook.service.completions import routes as completions
from minutebook.service.http.requests import StrictRoute, _fast_path, require_scope
from minutebook.service.http.responses import JsonResponse
from minutebook.service.state import CurrentService
from tests.service.guarded import Guarded

router = APIRouter(route_class=StrictRoute)


class Word(BaseModel):
    word: str
    times: int = 1


@router.post("/simple")
async def simple(
    service: CurrentService, request: Request, body: Word, caller: Annotated[Caller, require_scope("write")]
):
    return respond(service, request, body, caller)


@router.post("/with-query")
async def with_query(
    service: CurrentService,
    request: Request,
    body: Word,
    caller: Annotated[Caller, require_scope("write")],
    _more: Annotated[int, Query()] = 0,
):
    return respond(service, request, body, caller)


def respond(service, request, body, caller):
    is_same = request.app.state.service is service
    return JsonResponse({"text": body.word * body.times, "tenant": caller.tenant, "is_same": is_same})


@pytest.fixture
def guarded():
    guarded = Guarded(requests_per_minute=1)
    guarded.app.include_router(router)
    return guarded


def test_only_handlers_with_the_four_common_parameters_have_a_fast_path():
    assert _fast_path(simple) is not None
    assert _fast_path(with_query) is None
    assert _fast_path(completions.create_completion) is not None


@pytest.mark.parametrize(
    "request_",
    [
        {"json": {"word": "a", "times": 3}},
        {"json": {"word": "a", "times": "3"}},
        {"json": {"word": 1}},
        {"json": {}},
        {"json": ["word"]},
        {"json": {"word": "a" * 2_000}},
        {"content": b'{"word": "a", "word": "b"}', "headers": {"content-type": "application/json"}},
        {"content": b'{"word": NaN}', "headers": {"content-type": "application/json"}},
        {"content": b'{"word": "a"}', "headers": {"content-type": "application/merge+json; charset=utf-8"}},
        {"content": b'{"word": "a"}', "headers": {"content-type": "text/plain"}},
        {"content": b""},
    ],
)
@pytest.mark.parametrize("scopes", [None, ["read"], ["write"]])
def test_the_fast_path_responds_like_fastapi(guarded, request_, scopes):
    headers = dict(request_.get("headers", {}))
    if scopes is not None:
        headers["authorization"] = f"Bearer {guarded.key(scopes=scopes).token}"

    fast, _ = guarded.ask(*[("POST", "/simple", {**request_, "headers": headers})] * 2)
    other = Guarded(requests_per_minute=1)
    other.app.include_router(router)
    if scopes is not None:
        headers["authorization"] = f"Bearer {other.key(scopes=scopes).token}"
    slow, _ = other.ask(*[("POST", "/with-query", {**request_, "headers": headers})] * 2)

    assert (fast.status_code, fast.json()) == (slow.status_code, slow.json())


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_media_type_is_refused_with_the_right_one(guarded, media_type):
    response = guarded.post("/simple", content=b'{"word": "a"}', headers={"content-type": media_type})

    assert (response.status_code, response.json()["error"]["param"]) == (415, "Content-Type")
    assert "application/json" in response.json()["error"]["message"]


def test_the_fast_path_counts_each_request_once(guarded):
    headers = {"authorization": f"Bearer {guarded.key(scopes=['write']).token}"}
    options = {"json": {"word": "a"}, "headers": headers}

    first, second = guarded.ask(("POST", "/simple", options), ("POST", "/simple", options))

    assert (first.status_code, second.status_code) == (200, 429)
