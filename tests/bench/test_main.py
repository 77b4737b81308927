"""`make bench` installs other libraries only for the parts that measure them."""

import sys

import pytest

from bench import __main__ as bench
from bench.peers_env import Peers
from bench.report import Part


@pytest.mark.parametrize(("arguments", "installs"), [(["--only", "ours"], 0), (["--only", "ours,theirs"], 1), ([], 1)])
def test_peers_are_installed_only_for_parts_that_take_them(monkeypatch, arguments, installs):
    installed, received = [], []

    def find_or_install_peers():
        installed.append(Peers(None, "none in this test"))
        return installed[-1]

    def measure_ours(*, quick):
        return Part()

    def measure_theirs(peers, *, quick):
        received.append(peers)
        return Part()

    monkeypatch.setattr(bench, "PARTS", {"ours": measure_ours, "theirs": measure_theirs})
    monkeypatch.setattr(bench, "find_or_install_peers", find_or_install_peers)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])

    assert bench.main() == 0
    assert len(installed) == installs
    assert received == installed
