"""The demo checkpoint's chat template: from messages to the text that the model reads.

Knows the released model's turn marks; knows nothing about tokens. `TEMPLATE` is the content of
`chat_template.jinja`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jinja2.sandbox import ImmutableSandboxedEnvironment

from localdiff.demo.skills.example import Message

Render = Callable[[Sequence[Message]], str]

TEMPLATE = """\
{#- A turn: <|turn>ROLE, a line break, the text, <turn|>, a line break. -#}
{#- Parts follow each other, each trimmed, as in the released template; a turn without content is empty. -#}
{%- macro written(message, by_model=false) -%}
  {%- set content = message.get('content') or '' -%}
  {%- for text in ([content] if content is string else content | map(attribute='text')) -%}
    {{- (text.split('<channel|>')[-1] if by_model else text) | trim -}}
  {%- endfor -%}
{%- endmacro -%}
{%- set head = messages[0] if messages and messages[0]['role'] in ['system', 'developer'] else none -%}
{{- bos_token -}}
{%- if head or enable_thinking -%}
  {{- '<|turn>system\\n' -}}
  {%- if enable_thinking -%}{{- '<|think|>\\n' -}}{%- endif -%}
  {%- if head -%}{{- written(head) -}}{%- endif -%}
  {{- '<turn|>\\n' -}}
{%- endif -%}
{%- for message in (messages[1:] if head else messages) -%}
  {%- set by_model = message['role'] in ['assistant', 'model'] -%}
  {{- '<|turn>' + ('model' if by_model else message['role']) + '\\n' -}}
  {{- written(message, by_model) + '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\\n' -}}{%- endif -%}
"""


def compile_template(source: str = TEMPLATE) -> Render:
    """A function from (role, content) pairs to the prompt text, ending where the model's turn begins."""
    template = ImmutableSandboxedEnvironment().from_string(source)

    def render(messages: Sequence[Message]) -> str:
        turns = [{"role": role, "content": content} for role, content in messages]
        return template.render(messages=turns, bos_token="<bos>", add_generation_prompt=True)

    return render
