import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import PROGRAM
from tests.programs import Program


@contextmanager
def serving(folder: Path, *options, config=None):
    """`minutebook serve` in a process of its own, and what it said when it began to listen."""
    if config is not None:
        (folder / "llm_config.yaml").write_text(config)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
    process = Program("serve", "-p", "0", "--json", "--db", "sqlite:///chat.db", *options, cwd=folder, env=clean)
    try:
        line = process.stdout.readline()
        yield process, json.loads(line) if line else None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()
        process.stderr.close()


def asked(url, text="Hello there.", **headers):
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    with httpx2.Client(trust_env=False, timeout=30) as http:
        return http.post(f"{url}/v1/chat/completions", json=body, headers={"X-Conversation-Id": "c-1", **headers})


def test_it_answers_with_a_demo_model_and_keeps_what_was_said(tmp_path):
    with serving(tmp_path) as (process, told):
        assert told["url"].startswith("http://127.0.0.1:")
        answer = asked(told["url"])
        assert "'Hello there.'" in answer.json()["choices"][0]["message"]["content"]
        assert answer.headers["x-history"] == "recorded"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    shown = subprocess.run(
        [*PROGRAM, "show", "c-1", "--db", "sqlite:///chat.db"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "Hello there." in shown.stdout


def test_a_new_configuration_holds_after_sighup_and_a_wrong_one_does_not(tmp_path):
    with serving(tmp_path, config="server: {missing_session_id: pass_through}") as (process, told):
        for config, status in (
            ("server: {missing_session_id: reject}", 400),
            ("server: {missing_session_id: perhaps}", 400),
            ("server: {missing_session_id: pass_through}", 200),
        ):
            (tmp_path / "llm_config.yaml").write_text(config)
            process.send_signal(signal.SIGHUP)
            with httpx2.Client(trust_env=False, timeout=30) as http:
                for _ in range(200):
                    answer = http.post(
                        f"{told['url']}/v1/chat/completions",
                        json={"model": "demo", "messages": [{"role": "user", "content": "x"}]},
                    )
                    if answer.status_code == status:
                        break
            assert answer.status_code == status


def test_it_does_not_listen_beyond_this_machine_without_keys(tmp_path):
    with serving(tmp_path, "--host", "0.0.0.0") as (process, told):
        assert told is None
        assert process.wait(30) == 2
        assert "minutebook keys create" in process.stderr.read()


def test_a_port_that_is_taken_is_told(tmp_path):
    with serving(tmp_path) as (_, told):
        port = told["url"].rpartition(":")[2]
        with serving(tmp_path, "--port", port) as (second, nothing):
            assert nothing is None
            assert second.wait(30) == 1
            assert "in use" in second.stderr.read()


def test_a_wrong_configuration_is_told_with_its_line(tmp_path):
    with serving(tmp_path, config="server:\n  prot: 8000\n") as (process, told):
        assert told is None
        assert process.wait(30) == 5
        said = process.stderr.read()
        assert "llm_config.yaml:2" in said
        assert "port" in said


@pytest.mark.parametrize("seed", [0, 3])
def test_the_demo_tells_the_whole_story(run, seed):
    told = json.loads(
        run("demo", "--serve", "--turns", "3", "--max-tokens", "4000", "--seed", str(seed), "--json").stdout
    )
    assert told["record"]["complete"]
    assert told["rejected_requests"] == 0
    assert told["largest_request"] <= 4_000
    assert told["tokens_sent"] <= told["tokens_without_pruning"]


def test_the_story_fits_a_log_of_100_columns(run):
    said = run("demo", "--serve", "--turns", "3", "--max-tokens", "4000").stdout
    assert max(map(len, said.splitlines())) <= 100
    assert "every message of the client and the model" in said


def test_the_users_own_models_define_the_window_of_the_service(tmp_path):
    (tmp_path / "models.json").write_text('{"demo": {"max_input_tokens": 300}}')
    messages = [{"role": role, "content": "tea " * 20} for role in ("user", "assistant") * 20]
    body = {"model": "demo", "messages": [*messages, {"role": "user", "content": "More?"}]}

    with serving(tmp_path, config="models_file: models.json") as (_, told), httpx2.Client(trust_env=False) as http:
        answer = http.post(f"{told['url']}/v1/chat/completions", json=body, headers={"X-Conversation-Id": "c-1"})

    before, after = map(int, answer.headers["x-history-tokens"].split(", "))
    assert after <= 300 < before


@pytest.mark.parametrize("name", ["models.json", "missing.json"])
def test_a_wrong_models_file_is_reported_by_serve_and_check(tmp_path, name):
    (tmp_path / "models.json").write_text('{"demo": {"max_tokens": 300}}')
    (tmp_path / "llm_config.yaml").write_text(f"server: {{port: 0}}\nmodels_file: {name}\n")

    for command in (["serve"], ["config", "check", "llm_config.yaml"]):
        done = subprocess.run([*PROGRAM, *command], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 5
        assert done.stderr.startswith(f"error: llm_config.yaml:2:14: models_file is '{name}'; expected a JSON file")
        assert name in done.stderr.partition("(")[2]
