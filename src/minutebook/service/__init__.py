"""The chat service: conversations kept in a store, what the model sees pruned by configuration, answers streamed."""
