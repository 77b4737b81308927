"""How a conversation is written out for the small model when it shall call tools.

Its own template never shows it the tools it is offered. This one does, and writes a call as `<function=name>{…}</function>`,
a form in which llama.cpp lets nothing stand before the call: with `tool_choice="required"` even a model that was never taught
to call tools must begin with one, and its arguments fit the schema.
"""

from typing import Final

CALLING_TEMPLATE: Final = r"""
{%- if messages and messages[0].role == 'system' -%}
  {%- set system, rest = messages[0].content, messages[1:] -%}
{%- else -%}
  {%- set system, rest = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face', messages -%}
{%- endif -%}
{{- '<|im_start|>system\n' + system -}}
{%- if tools -%}
  {{- '\n\nTo use a tool, write <function=name>{...}</function>. The tools:\n' -}}
  {%- for tool in tools %}{{ tool.function | tojson + '\n' }}{% endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- for message in rest -%}
  {{- '<|im_start|>' + message.role + '\n' -}}
  {%- if message.content %}{{ message.content }}{% endif -%}
  {%- if message.tool_calls -%}
    {%- for call in message.tool_calls -%}
      {%- set given = call.function.arguments -%}
      {{- '<function=' + call.function.name + '>' + (given if given is string else given | tojson) + '</function>' -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""
"""A `chat_template` for `LocalModel` that brings tool calls; it is written for models that use ChatML, as SmolLM2 does."""
