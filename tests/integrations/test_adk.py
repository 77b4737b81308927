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


def test_without_google_adk_the_import_error_says_what_to_install():
    process = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    assert process.stdout == "google-adk is not installed; run: pip install 'minutebook[adk]'\n"


def test_importing_minutebook_does_not_load_google_adk():
    code = "import sys, minutebook, minutebook.integrations; print([n for n in sys.modules if 'adk' in n])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert process.stdout == "[]\n"
