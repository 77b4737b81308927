from minutebook.service.app import (
    create_app as create_app,
    service_from as service_from,
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
    "create_app",
    "load_config",
    "service_from",
]
