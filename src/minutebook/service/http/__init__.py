"""What every endpoint shares: authentication, request parsing, error bodies, paging, OpenAPI."""
