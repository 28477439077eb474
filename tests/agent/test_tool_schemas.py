"""Schemas of tools: valid, complete in themselves, and accepted by the packages of every provider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
from msgspec import Meta, Struct

from sessiontree.agent.loop import tool_definitions
from sessiontree.agent.tools.base import StructTool, load_tools, schema_of
from sessiontree.core.messages import User
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import Request, ScriptTurn
from sessiontree.settings.schema import json_schema
from sessiontree.testing.model_server import ModelServer
from tests.models.helpers import MODELS, ask_server

BUILT_IN = [*load_tools(), TaskTool()]
SERVERS = {**MODELS, "ollama": "ollama:some-model"}


def struct_tools() -> list[type[StructTool[Any]]]:
    """Every tool of the package whose arguments are a struct."""
    found: list[type[StructTool[Any]]] = []
    waiting = list(StructTool.__subclasses__())
    while waiting:
        tool = waiting.pop()
        waiting += tool.__subclasses__()
        if tool.__module__.startswith("sessiontree."):
            found.append(tool)
    return found


def references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [found for item in schema for found in references(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [found for value in schema.values() for found in references(value)]


def check_resolves(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references(schema):
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


@pytest.mark.parametrize("tool", struct_tools(), ids=lambda tool: tool.name)
def test_the_schema_of_every_tool_is_valid_and_has_no_open_reference(tool: type[StructTool[Any]]) -> None:
    schema = schema_of(tool.Arguments)
    check_resolves(schema)
    assert references(schema) == []


def test_the_schema_of_the_task_tool_checks_its_nested_budget() -> None:
    validator = jsonschema.Draft202012Validator(TaskTool().schema)
    task = {"description": "look", "prompt": "Look around."}
    assert validator.is_valid({**task, "budget": {"tokens": 500, "cost": 0.5}})
    assert validator.is_valid({**task, "budget": None})
    assert not validator.is_valid({**task, "budget": {"tokens": -1}})
    assert not validator.is_valid({**task, "budget": {"hours": 1}})


class Leaf(Struct, frozen=True):
    size: Annotated[int, Meta(gt=0)]


class Node(Struct, frozen=True):
    children: tuple[Node, ...] = ()
    leaf: Annotated[Leaf, Meta(description="its own leaf")] | None = None


class Tree(Struct, frozen=True):
    root: Node
    spare: Leaf | None = None


def test_a_struct_that_contains_itself_is_defined_once() -> None:
    schema = schema_of(Tree)
    check_resolves(schema)
    assert list(schema["$defs"]) == ["Node"]
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"root": {"children": [{"children": [], "leaf": {"size": 2}}]}})
    assert not validator.is_valid({"root": {"children": [{"children": [{"leaf": {"size": 0}}]}]}})
    assert not validator.is_valid({"root": {}, "spare": {"size": "large"}})


@pytest.mark.slow
@pytest.mark.parametrize("server_model", SERVERS.values(), ids=SERVERS.keys())
def test_every_provider_receives_schemas_that_resolve(server_model: str) -> None:
    request = Request([User(content="hello")], "be brief", tool_definitions(load_tools_with_task()))
    with ModelServer([ScriptTurn(text="Hello.")]) as server:
        ask_server(server, server_model, request)
        (sent,) = server.requests
    schemas = _schemas(sent.body["tools"])
    assert len(schemas) == len(BUILT_IN)
    for schema in schemas:
        check_resolves(schema)


def load_tools_with_task() -> Any:
    tools = load_tools()
    tools.add(TaskTool())
    return tools


def _schemas(tools: list[Any]) -> list[dict[str, Any]]:
    """The schemas of the tools in a request of any protocol."""
    found = []
    for tool in tools:
        if "functionDeclarations" in tool:
            found += [_gemini(one) for one in tool["functionDeclarations"]]
        else:
            found.append(tool.get("input_schema") or tool.get("parameters") or tool["function"]["parameters"])
    return found


def _gemini(declaration: dict[str, Any]) -> dict[str, Any]:
    names = ("parametersJsonSchema", "parameters_json_schema", "parameters")
    found: dict[str, Any] = next(declaration[name] for name in names if name in declaration)
    return found


def test_the_schemas_of_the_mcp_server_and_of_the_settings_resolve(tmp_path: Path) -> None:
    from sessiontree.library.library import Library
    from sessiontree.mcp_server.tools import build_server

    server = build_server(lambda: Library(str(tmp_path)), None)
    tools = asyncio.run(server.list_tools())
    assert tools
    for tool in tools:
        check_resolves(tool.input_schema)
    check_resolves(json_schema())
