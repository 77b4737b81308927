"""The service configuration: `schema` has the keys, `loader` reads files, environment and flags."""
