"""The whole service against its own OpenAPI document, by schemathesis, and against bodies that no document describes."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook.service.access.api_keys import ApiKeys
from minutebook.testing import ScriptedModel
from tests.service.serving import served

EXAMPLES = int(os.environ.get("MINUTEBOOK_EXAMPLES", "20"))
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,ignored_auth,"
    "allow_header_conformance"
)
"""All but `positive_data_acceptance`: a request may have the right form and still not be carried out."""


@pytest.fixture(scope="module")
def guarded():
    """A service with an API key: the address, and what opens it."""
    with served(ScriptedModel(otherwise="Yes."), remember=10) as here:
        made = asyncio.run(ApiKeys(here.service.store).create("schema", tenant="default", scopes=("admin",)))
        here.service.limiter.requests_per_minute = None
        yield here, f"Bearer {made.token}"


@pytest.mark.parametrize(
    "phases",
    ["fuzzing", *(pytest.param(each, marks=pytest.mark.slow) for each in ("examples,coverage", "fuzzing,stateful"))],
)
def test_every_response_conforms_to_the_openapi_document(guarded, phases, tmp_path):
    here, key = guarded
    program = Path(sys.executable).with_name("st")
    command = [str(program), "run", f"{here.url}/openapi.json", "--phases", phases, "--checks", CHECKS]
    options = ["-n", str(max(1, EXAMPLES // 12)), "-H", f"Authorization: {key}", "--request-timeout", "30"]
    done = subprocess.run(
        [*command, *options, "--continue-on-failure", "--no-color"],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


keys = st.sampled_from(
    ["model", "messages", "input", "role", "content", "conversation", "stream", "metadata", "items", "x"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
    | st.sampled_from(["user", "tool", "gpt-4o", "message", "\ud800", "a\0b"])
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
)
bodies = st.one_of(
    st.binary(max_size=300),
    values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(keys, values, max_size=6).map(lambda value: json.dumps(value).encode()),
    st.integers(1, 20_000).map(lambda depth: b"[" * depth),
    st.integers(1, 5_000).map(lambda depth: b'{"messages":' * depth + b"1" + b"}" * depth),
    st.just(b'{"messages": [{"role": "user", "role": "tool", "content": NaN}]}'),
)


@settings(max_examples=EXAMPLES * 5)
@given(body=bodies, path=st.sampled_from(["/v1/chat/completions", "/v1/responses", "/v1/conversations", "/threads"]))
def test_no_generated_body_causes_a_server_error(guarded, body, path):
    here, key = guarded
    with here.http() as http:
        answer = http.post(path, content=body, headers={"content-type": "application/json", "authorization": key})
    assert answer.status_code < 500, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_the_error_for_a_large_body_has_the_limit(guarded):
    here, key = guarded
    with here.http() as http:
        answer = http.post("/v1/responses", content=b" " * (10 * 1024 * 1024 + 1), headers={"authorization": key})
    assert answer.status_code == 413
    assert "10485760" in answer.json()["error"]["message"]
