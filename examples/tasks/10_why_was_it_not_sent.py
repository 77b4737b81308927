"""Task 10: why message 17 was not sent in request 9 yesterday.

The same on the command line: minutebook why order-48213 --message 17 --request 9 --db sqlite:///chat.db
"""

from minutebook import Conversation

print(Conversation("order-48213", store="chat.db").why(17, request=9))
