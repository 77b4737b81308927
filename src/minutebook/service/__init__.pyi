from minutebook.service.app import (
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
from minutebook.service.lifespan import (
    service_from as service_from,
)

__all__ = [
    "ConfigHolder",
    "LoadedConfig",
    "ServiceConfig",
    "create_app",
    "load_config",
    "service_from",
]
