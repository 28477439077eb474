"""Open a model by name."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sessiontree.models.base import Model
from sessiontree.models.endpoints import find_endpoint
from sessiontree.models.facts import find_facts, read_facts

SCRIPTED = "scripted:"


def open_model(name: str, *, environment: Mapping[str, str] | None = None, facts: str | None = None) -> Model:
    """Open a model by name: "provider:name", or "scripted:FILE" for a fake model that replays a script.

    `environment` has keys and URLs (default: the process's environment), `facts` is a file with facts about more models
    (the setting `models`). Nothing is sent, and no provider's package is imported, before the first request.
    """
    if name.startswith(SCRIPTED):
        from sessiontree.models.scripted import ScriptedModel, read_script

        return ScriptedModel(read_script(name.removeprefix(SCRIPTED)))
    from sessiontree.models.pydantic_ai_model import PydanticAIModel

    endpoint = find_endpoint(name, os.environ if environment is None else environment)
    return PydanticAIModel(endpoint, find_facts(endpoint.provider, endpoint.model, read_facts(facts)))
