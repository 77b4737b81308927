"""The tests that every store backend must pass; `suite.StoreContract` combines them."""
