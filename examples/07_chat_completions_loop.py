"""A plain loop over the Chat Completions API, which most providers and gateways speak; its history is a session.

With LiteLLM, `litellm.completion(model=..., messages=..., tools=...)` takes the same messages and returns such a reply.
A scripted server on 127.0.0.1 answers in the model's place; with `--live`, the provider does.
"""

import json
import sys

from openai import OpenAI

import sessiontree
from sessiontree.models import ScriptTurn
from sessiontree.models.scripted import ScriptCall
from sessiontree.providers import render
from sessiontree.testing.model_server import ModelServer

SCRIPT = [ScriptTurn(tool_calls=(ScriptCall("today", {}),)), ScriptTurn(when="Monday", text="It is Monday.")]
TODAY = {"type": "function", "function": {"name": "today", "parameters": {"type": "object", "properties": {}}}}


def answer(client: OpenAI, session: sessiontree.Session) -> str:
    """Send the session's context and run tools until the model answers."""
    while True:
        sent = render(session.context().messages, "openai-chat").messages
        with client.chat.completions.stream(model="gpt-5", messages=sent, tools=[TODAY]) as stream:  # type: ignore[arg-type,list-item]
            reply = stream.get_final_completion().choices[0].message
        calls = [(call.id, call.function) for call in reply.tool_calls or ()]
        blocks = [{"type": "text", "text": reply.content}] if reply.content else []
        for id, call in calls:
            arguments = json.loads(call.arguments or "{}")
            blocks.append({"type": "toolCall", "id": id, "name": call.name, "arguments": arguments})
        session.append(role="assistant", content=blocks, stopReason="toolUse" if calls else "stop", model="gpt-5")
        if not calls:
            return session.context().messages[-1].text
        for id, call in calls:
            session.append(role="toolResult", toolCallId=id, toolName=call.name, content="Monday")


with ModelServer(SCRIPT) as server:
    client = OpenAI() if "--live" in sys.argv else OpenAI(api_key="any", base_url=f"{server.url}/v1")
    session = sessiontree.create(cwd=".", home="memory:loops")
    session.append("user", "Which day is it?")
    print(answer(client, session))
