"""A checkpoint saver for LangGraph: each thread is an ordinary session.

    graph = builder.compile(checkpointer=SessionTreeSaver("/srv/threads"))

A thread's messages become entries of the session, so that it can be listed, searched, converted and exported like any
other. Between them are entries of three types of our own:

    langgraph_checkpoint   a checkpoint: versions, metadata, and the values of the channels that changed
    langgraph_writes       the pending writes of one task
    langgraph_deleted      the checkpoints that were deleted; a session is only ever appended to

A value is stored once. A message is named by the id of its entry, a list by the checkpoint it extends and its new
items, and a large value by its hash in the blobs.

    saver      what LangGraph calls
    thread     an open thread: its session, and an index of its checkpoints
    batch      the lines of one write
    values     values as JSON, and back
    messages   LangChain's messages as messages of a session
"""

from __future__ import annotations

from sessiontree.adapters.langgraph.saver import SessionTreeSaver

__all__ = ["SessionTreeSaver"]
