"""The SQL that SQLite and PostgreSQL share: their tables have the same columns."""
