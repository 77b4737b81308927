from typing import Annotated

import pytest
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from minutebook.service.access.api_keys import Caller
from minutebook.service.completions import routes as completions
from minutebook.service.http.requests import StrictRoute, _brief, require_scope
from minutebook.service.http.responses import JsonResponse
from minutebook.service.state import Here
from tests.service.guarded import Guarded

router = APIRouter(route_class=StrictRoute)


class Word(BaseModel):
    word: str
    times: int = 1


@router.post("/brief")
async def brief(service: Here, request: Request, given: Word, caller: Annotated[Caller, require_scope("write")]):
    return said(service, request, given, caller)


@router.post("/long")
async def long(
    service: Here,
    request: Request,
    given: Word,
    caller: Annotated[Caller, require_scope("write")],
    _more: Annotated[int, Query()] = 0,
):
    return said(service, request, given, caller)


def said(service, request, given, caller):
    here = request.app.state.service is service
    return JsonResponse({"said": given.word * given.times, "tenant": caller.tenant, "here": here})


@pytest.fixture
def guarded():
    made = Guarded(requests_per_minute=1)
    made.app.include_router(router)
    return made


def test_a_handler_of_what_every_handler_has_is_reached_by_the_short_way():
    assert _brief(brief) is not None
    assert _brief(long) is None
    assert _brief(completions.create_completion) is not None


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
def test_the_short_way_answers_as_the_long_one_does(guarded, request_, scopes):
    headers = dict(request_.get("headers", {}))
    if scopes is not None:
        headers["authorization"] = f"Bearer {guarded.key(scopes=scopes).token}"

    short, _ = guarded.ask(*[("POST", "/brief", {**request_, "headers": headers})] * 2)
    other = Guarded(requests_per_minute=1)
    other.app.include_router(router)
    if scopes is not None:
        headers["authorization"] = f"Bearer {other.key(scopes=scopes).token}"
    long_, _ = other.ask(*[("POST", "/long", {**request_, "headers": headers})] * 2)

    assert (short.status_code, short.json()) == (long_.status_code, long_.json())


def test_the_short_way_counts_each_request_once(guarded):
    headers = {"authorization": f"Bearer {guarded.key(scopes=['write']).token}"}
    given = {"json": {"word": "a"}, "headers": headers}

    first, second = guarded.ask(("POST", "/brief", given), ("POST", "/brief", given))

    assert (first.status_code, second.status_code) == (200, 429)
