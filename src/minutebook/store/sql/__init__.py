"""What SQLite and PostgreSQL share: their tables have the same columns, so each statement is written once."""
