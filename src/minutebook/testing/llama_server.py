"""A program that runs llama.cpp's server until its standard input is closed.

`LocalModel` runs this file as a process with one argument, the settings as JSON, and reads the URL that it prints when the
model is loaded. The file imports nothing of minutebook, so that it starts fast.

The server is a separate process because loading a model holds the interpreter's lock, stopping the server may block while an answer
is generated, and a failed assertion in native code would end the test run.
"""

import json
import os
import sys
from typing import Any


def server_parameters(settings: dict[str, Any]) -> Any:
    from xllamacpp import CommonParams

    params = CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = {settings["model"]}
    params.n_ctx = settings["max_context_tokens"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.sampling.temp = settings["temperature"]
    params.sampling.seed = settings["seed"]
    params.n_predict = settings["max_answer_tokens"]
    params.chat_template = settings["chat_template"]
    params.cache_ram_mib = 512  # the default is 8 GiB
    params.verbosity = 1  # errors only
    params.offline = True
    params.ui = False
    params.cors_origins = ""  # no access from pages in a browser
    return params


def main() -> None:
    from xllamacpp import Server

    try:
        server = Server(server_parameters(json.loads(sys.argv[1])))
    except RuntimeError:
        sys.exit(1)  # the log has the reason, the exception does not
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # The parent has closed the pipe. There is nothing to save, and stopping the server may block.
    os._exit(0)


if __name__ == "__main__":
    main()
