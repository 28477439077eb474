"""A plain loop with the OpenAI SDK (Responses API) whose history is a session: it can be resumed, branched, searched.

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
TODAY = {"type": "function", "name": "today", "parameters": {"type": "object", "properties": {}}, "strict": False}


def answer(client: OpenAI, session: sessiontree.Session) -> str:
    """Send the session's context and run tools until the model answers."""
    while True:
        sent = render(session.context().messages, "openai").messages
        with client.responses.stream(model="gpt-5", input=sent, tools=[TODAY], store=False) as stream:  # type: ignore[arg-type,list-item]
            reply = stream.get_final_response()
        calls = [item for item in reply.output if item.type == "function_call"]
        blocks = [{"type": "text", "text": reply.output_text}] if reply.output_text else []
        for call in calls:
            arguments = json.loads(call.arguments or "{}")
            blocks.append({"type": "toolCall", "id": call.call_id, "name": call.name, "arguments": arguments})
        session.append(role="assistant", content=blocks, stopReason="toolUse" if calls else "stop", model=reply.model)
        if not calls:
            return session.context().messages[-1].text
        for call in calls:
            session.append(role="toolResult", toolCallId=call.call_id, toolName=call.name, content="Monday")


with ModelServer(SCRIPT) as server:
    client = OpenAI() if "--live" in sys.argv else OpenAI(api_key="any", base_url=f"{server.url}/v1")
    session = sessiontree.create(cwd=".", home="memory:loops")
    session.append("user", "Which day is it?")
    print(answer(client, session))
