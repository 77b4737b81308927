import subprocess
import sys

WITHOUT = "import sys; sys.modules['lark'] = None; from minutebook.dsl.parser import parse_agents; parse_agents('')"
LOADED = "import sys; import minutebook.dsl.compiler, minutebook.dsl.formatter; print('lark' in sys.modules)"


def test_without_lark_it_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert done.stderr.rstrip().endswith("MissingExtra: lark is not installed; run: pip install 'minutebook[dsl]'")


def test_lark_is_loaded_when_something_is_parsed_and_not_before():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
