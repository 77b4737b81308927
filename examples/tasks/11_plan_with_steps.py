"""Task 11: an agent with a plan, whose finished steps are shown as summaries."""

from examples.tasks.data import read_file
from minutebook import Conversation, OpenAIAdapter
from minutebook.planning import PlanningToolsSection, TaskHistorySection

chat = Conversation("refactor", store="chat.db", model="gpt-4o", system="You refactor code.")
chat.run(
    OpenAIAdapter("gpt-4o"),
    "Please begin.",
    tools=[read_file],
    sections=[PlanningToolsSection(), TaskHistorySection()],
)
