"""Chat templates in the style of well-known models, and conversations for them."""

from __future__ import annotations

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BRACKETS = """
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set content = system_message + message['content'] if loop.index0 == 0 else message['content'] %}
    {%- if message['role'] == 'user' %}
        {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {%- else %}
        {{- ' ' + content.strip() + ' ' + eos_token }}
    {%- endif %}
{%- endfor %}
"""
HEADERS = """{{- bos_token }}
{%- set ns = namespace(found=false, count=0) %}
{%- for message in messages %}
  {%- set ns.count = ns.count + 1 %}
  {%- if message.role == "system" %}{% set ns.found = true %}{% endif %}
{%- endfor %}
{%- if not ns.found and tools is none and not documents is defined %}no way here{% endif %}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
{{- ns.count }}
"""
MARKED = """{% for message in messages %}
{% if message.role == 'assistant' %}
{% generation %}
{{ message.content }}{{ eos_token }}
{% endgeneration %}
{% else %}
    <|{{ message.role }}|>
{{ message | tojson }} {{ dict(a=1) | tojson(indent=2) }}
{% endif %}
{% if loop.index > 8 %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>
{% endif %}"""

TEMPLATES = {"chatml": CHATML, "brackets": BRACKETS, "headers": HEADERS, "marked": MARKED}

CHATS = {
    "one": [{"role": "user", "content": "Hello <b>you</b> & ${me} é \U0001f600"}],
    "system": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "  What's 2 < 3?  "}],
    "several": [
        {"role": "user", "content": "Hi\n\nthere"},
        {"role": "assistant", "content": 'A "quote".'},
        {"role": "user", "content": "{{ messages }}"},
    ],
    "empty": [{"role": "user", "content": ""}],
}
