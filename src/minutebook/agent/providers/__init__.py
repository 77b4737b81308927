"""Adapters for the official provider clients, one module per provider."""
