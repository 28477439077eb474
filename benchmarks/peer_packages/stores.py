"""Session stores of frameworks behind one interface: append a message, read the latest ones, start a branch.

Each framework is imported when its store is made: every environment has only one of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

LATEST = 50
_TEXT = "The quick brown fox jumps over the lazy dog. " * 12


class Store(Protocol):
    """A store with one conversation of a name."""

    async def append(self, first: int, last: int) -> None:
        """Append the messages of these numbers; in one call if the store can."""

    async def latest(self) -> int:
        """Read the latest messages; returns their number."""

    async def branch(self, turn: int, /) -> bool:
        """Start a branch before a turn, or fork the conversation; False if the store cannot."""

    async def close(self) -> None: ...


Maker: TypeAlias = Callable[[str, str], Awaitable[Store]]
"""Takes a folder or the address of a database, and the name of the conversation."""


def text_of(number: int) -> str:
    return f"{number}: {_TEXT}"


# OpenAI Agents SDK


def _item(number: int) -> dict[str, Any]:
    """A question, a tool call, its result, an answer, and so on."""
    call = f"call_{number // 4}"
    match number % 4:
        case 0:
            return {"role": "user", "content": text_of(number)}
        case 1:
            return {"type": "function_call", "call_id": call, "name": "read", "arguments": '{"path": "README.md"}'}
        case 2:
            return {"type": "function_call_output", "call_id": call, "output": text_of(number)}
        case _:
            part = {"type": "output_text", "text": text_of(number), "annotations": []}
            return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}


class _OpenAi:
    def __init__(self, session: Any, end: Callable[[], Any] | None = None) -> None:
        self._session, self._end = session, end

    async def append(self, first: int, last: int) -> None:
        await self._session.add_items([_item(number) for number in range(first, last)])

    async def latest(self) -> int:
        return len(await self._session.get_items(LATEST))

    async def branch(self, turn: int) -> bool:
        if not hasattr(self._session, "create_branch_from_turn"):
            return False
        await self._session.create_branch_from_turn(turn)
        await self._session.switch_to_branch("main")
        return True

    async def close(self) -> None:
        if self._end is not None:
            await self._end()
        else:
            self._session.close()


async def _sqlite_session(place: str, name: str) -> Store:
    from agents import SQLiteSession

    return _OpenAi(SQLiteSession(name, f"{place}/sqlite.db"))


async def _advanced_sqlite_session(place: str, name: str) -> Store:
    from agents.extensions.memory import AdvancedSQLiteSession

    path = f"{place}/advanced.db"
    return _OpenAi(AdvancedSQLiteSession(session_id=name, db_path=path, create_tables=True))


async def _sqlalchemy_session(place: str, name: str) -> Store:
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(_sqlalchemy_url(place, "alchemy.db"))
    return _OpenAi(SQLAlchemySession(name, engine=engine, create_tables=True), engine.dispose)


def _sqlalchemy_url(place: str, file: str) -> str:
    if "://" not in place:
        return f"sqlite+aiosqlite:///{place}/{file}"
    return place.replace("postgresql://", "postgresql+psycopg://", 1)


async def _tree_session(place: str, name: str) -> Store:
    from sessiontree.adapters.openai_agents import TreeSession

    return _OpenAi(TreeSession(name, place))


async def _tree_session_synced(place: str, name: str) -> Store:
    from sessiontree.adapters.openai_agents import TreeSession

    return _OpenAi(TreeSession(name, place, durability="append"))


async def _branching_session_synced(place: str, name: str) -> Store:
    from sessiontree.adapters.openai_agents import BranchingTreeSession

    return _OpenAi(BranchingTreeSession(name, place, durability="append"))


# Google ADK


class _Adk:
    def __init__(self, service: Any, session: Any) -> None:
        self._service, self._session = service, session

    async def append(self, first: int, last: int) -> None:
        from google.adk.events import Event
        from google.genai import types

        for number in range(first, last):
            author = "user" if number % 2 == 0 else "model"
            content = types.Content(role=author, parts=[types.Part(text=text_of(number))])
            event = Event(author=author, invocation_id=f"i{number}", content=content)
            await self._service.append_event(self._session, event)

    async def latest(self) -> int:
        from google.adk.sessions.base_session_service import GetSessionConfig

        found = await self._service.get_session(
            app_name="a",
            user_id="u",
            session_id=self._session.id,
            config=GetSessionConfig(num_recent_events=LATEST),
        )
        return len(found.events)

    async def branch(self, _turn: int) -> bool:
        return False

    async def close(self) -> None:
        if hasattr(self._service, "close"):
            await self._service.close()


async def _adk_sqlite(place: str, name: str) -> Store:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    service = SqliteSessionService(f"{place}/adk.db")
    return _Adk(service, await service.create_session(app_name="a", user_id="u", session_id=name))


async def _adk_database(place: str, name: str) -> Store:
    from google.adk.sessions import DatabaseSessionService

    service = DatabaseSessionService(_sqlalchemy_url(place, "adk-database.db"))
    return _Adk(service, await service.create_session(app_name="a", user_id="u", session_id=name))


# LangGraph


class _LangGraph:
    def __init__(self, saver: Any, name: str, end: Callable[[], Awaitable[object]] | None = None) -> None:
        from langgraph.graph import END, START, MessagesState, StateGraph

        builder = StateGraph(MessagesState)
        builder.add_node("step", lambda _state: {})
        builder.add_edge(START, "step")
        builder.add_edge("step", END)
        self._graph = builder.compile(checkpointer=saver)
        self._config: Any = {"configurable": {"thread_id": name}}
        self._configs: list[Any] = []
        self._end = end

    async def append(self, first: int, last: int) -> None:
        for number in range(first, last):
            self._configs.append(await self._update(self._config, number))

    async def _update(self, config: Any, number: int) -> Any:
        from langchain_core.messages import AIMessage, HumanMessage

        kind = HumanMessage if number % 2 == 0 else AIMessage
        message = kind(content=text_of(number), id=str(number))
        return await self._graph.aupdate_state(config, {"messages": [message]}, as_node="step")

    async def latest(self) -> int:
        state = await self._graph.aget_state(self._config)
        return len(state.values["messages"][-LATEST:])

    async def branch(self, turn: int) -> bool:
        await self._update(self._configs[2 * turn], 10**9 + turn)
        return True

    async def close(self) -> None:
        if self._end is not None:
            await self._end()


async def _langgraph_sqlite(place: str, name: str) -> Store:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    connection = await aiosqlite.connect(f"{place}/langgraph.db")
    saver = AsyncSqliteSaver(connection)
    await saver.setup()
    return _LangGraph(saver, name, connection.close)


async def _langgraph_postgres(place: str, name: str) -> Store:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg import AsyncConnection
    from psycopg.rows import dict_row

    connection = await AsyncConnection.connect(place, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = AsyncPostgresSaver(connection)
    await saver.setup()
    return _LangGraph(saver, name, connection.close)


async def _langgraph_tree(place: str, name: str) -> Store:
    from sessiontree.adapters.langgraph import SessionTreeSaver

    return _LangGraph(SessionTreeSaver(place), name)


# Pydantic AI


class _PydanticAi:
    def __init__(self, store: Any, name: str) -> None:
        from pydantic_ai.conversation import Conversation

        self._store, self._name = store, name
        self._conversation = Conversation(conversation_id=name)

    async def append(self, first: int, last: int) -> None:
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

        for number in range(first, last):
            part = text_of(number)
            message = ModelRequest([UserPromptPart(part)]) if number % 2 == 0 else ModelResponse([TextPart(part)])
            self._conversation.messages.append(message)
        await self._store.save(self._conversation)

    async def latest(self) -> int:
        return len((await self._store.load(self._name, limit=LATEST)).messages)

    async def branch(self, _turn: int) -> bool:
        await self._store.fork(self._name)
        return True

    async def close(self) -> None: ...


async def _pydantic_memory(_place: str, name: str) -> Store:
    from pydantic_ai.conversation_store import InMemoryConversationStore

    return _PydanticAi(InMemoryConversationStore(), name)


async def _pydantic_tree(place: str, name: str) -> Store:
    from sessiontree.adapters.pydantic_ai import TreeConversationStore

    return _PydanticAi(TreeConversationStore(place), name)


async def _pydantic_tree_memory(_place: str, name: str) -> Store:
    from sessiontree.adapters.pydantic_ai import TreeConversationStore

    return _PydanticAi(TreeConversationStore(f"memory:{uuid.uuid4()}"), name)


OURS = " (ours)"
FILE_STORES: dict[str, dict[str, Maker]] = {
    "openai-agents": {
        "SQLiteSession": _sqlite_session,
        "AdvancedSQLiteSession": _advanced_sqlite_session,
        "SQLAlchemySession": _sqlalchemy_session,
        f"TreeSession, each append synced{OURS}": _tree_session_synced,
        f"TreeSession{OURS}": _tree_session,
        f"BranchingTreeSession, each append synced{OURS}": _branching_session_synced,
    },
    "google-adk": {"SqliteSessionService": _adk_sqlite, "DatabaseSessionService": _adk_database},
    "langgraph": {"AsyncSqliteSaver": _langgraph_sqlite, f"SessionTreeSaver{OURS}": _langgraph_tree},
    "pydantic-ai": {
        "InMemoryConversationStore, not durable": _pydantic_memory,
        f"TreeConversationStore in memory{OURS}": _pydantic_tree_memory,
        f"TreeConversationStore{OURS}": _pydantic_tree,
    },
}
"""By framework: the stores of the package and ours, in files."""
DATABASE_STORES: dict[str, dict[str, Maker]] = {
    "openai-agents": {
        "SQLAlchemySession": _sqlalchemy_session,
        f"TreeSession, each append synced{OURS}": _tree_session_synced,
    },
    "google-adk": {"DatabaseSessionService": _adk_database},
    "langgraph": {"AsyncPostgresSaver": _langgraph_postgres, f"SessionTreeSaver{OURS}": _langgraph_tree},
    "pydantic-ai": {f"TreeConversationStore{OURS}": _pydantic_tree},
}
"""The same in PostgreSQL."""
LONGEST = {"google-adk": 2_000, "langgraph": 500}
"""By framework: the longest history that is written. ADK syncs each event on its own, and each step of LangGraph
reads and writes the whole state: 60,000 messages would take up to twenty minutes and about six hours."""
