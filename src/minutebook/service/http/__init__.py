"""Code that all endpoints share: authentication, request parsing, error bodies, paging, OpenAPI."""
