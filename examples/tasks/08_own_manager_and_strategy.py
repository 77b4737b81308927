"""Task 8: a manager and a strategy of your own, with their own reasons, composed with a built-in manager."""

from examples.tasks.data import without_images
from minutebook import Changed, Conversation, Fold, HistoryStrategy
from minutebook.record import last_turns


class DropOldImages:
    def curate(self, messages, *, session):
        old = set(range(len(messages))) - last_turns(messages, 2)
        return [
            Changed(without_images(message), because="an old image") if index in old else message
            for index, message in enumerate(messages)
        ]


class FoldSmallTalk(HistoryStrategy):
    async def apply(self, history, summarizer):
        return [Fold.over(history.older_than(3), shown="[small talk]", reason="small talk")]


chat = Conversation(
    manager=[DropOldImages(), "tool_result_truncator:4000"], strategy=FoldSmallTalk(), store="chat.db", max_tokens=8_000
)
