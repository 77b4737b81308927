from minutebook.service.app import (
    build_service as build_service,
    create_app as create_app,
)
from minutebook.service.config.loader import (
    ConfigHolder as ConfigHolder,
    LoadedConfig as LoadedConfig,
    load_config as load_config,
)
from minutebook.service.config.schema import (
    ServiceConfig as ServiceConfig,
)

__all__ = [
    "ConfigHolder",
    "LoadedConfig",
    "ServiceConfig",
    "build_service",
    "create_app",
    "load_config",
]
