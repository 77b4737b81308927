"""llama.cpp's own server, alone in a process, until its standard input ends.

`LocalModel` runs this file with one argument, the settings as JSON, and reads the address that it prints when the model is
loaded. It imports nothing of minutebook, so that it starts as soon as it can.

It has a process of its own because in ours it would be a bad guest: starting holds the interpreter's lock for as long as
the model takes to load, stopping holds it too and may never end while an answer is under way, and a failed assertion in
native code would take the test run with it.
"""

import json
import os
import sys
from typing import Any


def parameters(settings: dict[str, Any]) -> Any:
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
    params.cache_ram_mib = 512  # by default up to 8 GiB of earlier prompts are kept
    params.verbosity = 1  # errors only
    params.offline = True
    params.ui = False
    params.cors_origins = ""  # a page in a browser has no business here
    return params


def main() -> None:
    from xllamacpp import Server

    try:
        server = Server(parameters(json.loads(sys.argv[1])))
    except RuntimeError:
        sys.exit(1)  # its reason is in the log, which the error itself is not
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # Whoever started us is gone. There is nothing to save, and the server's own goodbye may never end.
    os._exit(0)


if __name__ == "__main__":
    main()
