"""A plain loop with the Anthropic SDK whose history is a session: it can be resumed, branched and searched.

A scripted server on 127.0.0.1 answers in the model's place; with `--live`, the provider does.
"""

import sys

from anthropic import Anthropic

import sessiontree
from sessiontree.models import ScriptTurn
from sessiontree.models.scripted import ScriptCall
from sessiontree.providers import render
from sessiontree.testing.model_server import ModelServer

SCRIPT = [ScriptTurn(tool_calls=(ScriptCall("today", {}),)), ScriptTurn(when="Monday", text="It is Monday.")]
TODAY = {"name": "today", "description": "The day of the week", "input_schema": {"type": "object", "properties": {}}}


def answer(client: Anthropic, session: sessiontree.Session) -> str:
    """Send the session's context and run tools until the model answers."""
    while True:
        sent = render(session.context().messages, "anthropic").messages
        with client.messages.stream(model="claude-sonnet-5", max_tokens=1000, messages=sent, tools=[TODAY]) as stream:  # type: ignore[arg-type,list-item]
            reply = stream.get_final_message()
        calls = [block for block in reply.content if block.type == "tool_use"]
        blocks = [{"type": "text", "text": block.text} for block in reply.content if block.type == "text"]
        blocks += [{"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.input} for call in calls]  # type: ignore[dict-item]
        session.append(role="assistant", content=blocks, stopReason="toolUse" if calls else "stop", model=reply.model)
        if not calls:
            return session.context().messages[-1].text
        for call in calls:
            session.append(role="toolResult", toolCallId=call.id, toolName=call.name, content="Monday")


with ModelServer(SCRIPT) as server:
    client = Anthropic() if "--live" in sys.argv else Anthropic(api_key="any", base_url=server.url)
    session = sessiontree.create(cwd=".", home="memory:loops")
    session.append("user", "Which day is it?")
    print(answer(client, session))
