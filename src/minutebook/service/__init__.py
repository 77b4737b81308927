"""The HTTP service: chat completions, responses, threads and conversations on FastAPI.

One folder per group of endpoints; `http`, `access`, `config` and `observability` are shared by them. Start with `app`,
then `completions/routes` and `completions/run`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "app": ("create_app", "build_service"),
    "config.loader": ("ConfigHolder", "LoadedConfig", "load_config"),
    "config.schema": ("ServiceConfig",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
