"""Which conversation of a recipient is continued."""

from uuid import uuid4

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationStatus


async def id_of_recipient(store: ConversationStore, recipient: str) -> str:
    """The id of the recipient's newest conversation that is not closed or a fork, else a new id: the recipient if free."""
    cursor = None
    while True:
        page = await store.list(recipient=recipient, cursor=cursor)
        for header in page.items:
            if header.status is not ConversationStatus.CLOSED and header.origin is None:
                return header.id
        if (cursor := page.cursor) is None:
            break
    try:
        await store.header(recipient)
    except ConversationErased:
        pass
    except ConversationNotFound:
        return recipient
    return f"{recipient[:400]}.{uuid4().hex}"
