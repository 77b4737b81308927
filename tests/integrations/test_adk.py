import subprocess
import sys

CODE = """
import sys
sys.modules["google.genai"] = sys.modules["google.adk"] = None  # as if they were not installed
from minutebook.errors import MissingExtra
try:
    from minutebook.integrations.adk import AdkCompaction
except MissingExtra as error:
    print(error)
"""


def test_without_google_adk_the_import_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    assert done.stdout == "google-adk is not installed; pip install 'minutebook[adk]'\n"


def test_the_package_never_loads_it_by_itself():
    code = "import sys, minutebook, minutebook.integrations; print([n for n in sys.modules if 'adk' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
