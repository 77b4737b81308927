"""Task 7: a summary in place of old messages at 80 % of the window, three turns are kept; look at folds and undo one."""

from examples.tasks.data import talk
from minutebook import Conversation, ModelSummarizer, OpenAIAdapter, SummarizeStrategy

chat = Conversation(
    "order-48213",
    store="chat.db",
    model="gpt-4o",
    max_tokens=1_600,
    summarizer=ModelSummarizer(OpenAIAdapter("gpt-4o-mini")),
    strategy=SummarizeStrategy(threshold=0.8, keep_turns=3),
)
talk(chat)
for fold in chat.folds():
    print(fold.reason, chat[fold.start : fold.stop])
chat.undo(fold)
