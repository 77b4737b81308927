"""What every store must do, as tests; `StoreContract` runs them against a backend."""
