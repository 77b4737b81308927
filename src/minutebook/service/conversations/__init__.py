"""`/v1/conversations`: items, context, recipients. Start with `routes`."""
