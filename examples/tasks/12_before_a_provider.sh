# Task 12: the service between your clients and a provider. It records requests with the header X-Conversation-Id.
minutebook serve --db chat.db --upstream "$OPENAI_BASE_URL" --key-env OPENAI_API_KEY
