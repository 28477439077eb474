"""The facts about a session as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.branches.tips import count_tips
from sessiontree.core.usage import recorded_cost
from sessiontree.library.partial_reader import session_description
from sessiontree.models.cost_estimate import cost_total as estimated_cost
from sessiontree.session.reader import Reader
from sessiontree.views.json import describe_problem
from sessiontree.views.listing import cost_fields


def describe_session(session: Reader) -> dict[str, Any]:
    """The facts that `info` prints."""
    header = session.header
    origin, notes = header.forked_from, session.client_notes
    usage = session.usage()
    return {
        "id": session.id,
        "name": session.name,
        "description": session_description(session) or None,
        "dialect": session.dialect.name,
        "version": header.version,
        "path": session.location,
        "cwd": session.cwd,
        "created": header.timestamp,
        "lastActivity": session.last_activity,
        "gitBranch": session.git_branch,
        "forkedFrom": {"session": origin.session, "entry": origin.entry} if origin else None,
        "parentSession": header.parent_session,
        "leaf": session.leaf,
        "entries": len(session),
        "messages": session.count("message"),
        "compactions": session.count("compaction"),
        "branches": count_tips(session),
        "labels": session.labels,
        "tags": list(notes.tags),
        "agentSetting": notes.agent,
        "pullRequests": list(notes.pull_requests),
        "branchSummaries": dict(notes.branch_summaries),
        "contentReplacements": notes.replacements,
        "config": msgspec.to_builtins(session.config),
        "usage": {**msgspec.to_builtins(usage), "cost": recorded_cost(usage.cost)},
        **cost_fields(estimated_cost(usage.cost, usage.unpriced)),
        "orphans": session.orphans(),
        "pendingToolCalls": [{"id": call.id, "name": call.name} for call in session.pending_calls()],
        "beside": [
            {"kind": file.kind, "name": file.name, "call": file.call, "places": list(file.places)}
            for file in session.related_files()
        ],
        "readOnly": session.read_only,
        "problems": [describe_problem(problem) for problem in session.problems],
    }
