"""Claude Code's transcripts: chains of lines with many lines of metadata between them, no header.

    wire, ordinary  a line -> its envelope and its entry
    speech      what a line says without its texts: all that the rules below ask of most lines
    columns     blocks of lines -> envelopes and speech, at open
    chain       what the tree alone does not say of a line (time, sidechain, response), and walking up from a leaf
    relinks     better links where the chain is broken
    compaction  boundaries, and what they keep of the part before them
    parallel    shards and results of one response that hang beside the path
    path, leaf  the rules above put together: which lines belong to a leaf, and where the session stands
    spoken      what an entry says to the model
    plan        which messages a path gives, before any of them is decoded
    context     a path -> what the model sees
    titles, about  the session's name; its id, folder and origin
    beside      the files around a transcript: project folders, sub-agents, spilled tool output

The rules are those of client 2.1.325 as measured; `Reading` asks for the others.
"""

from sessiontree.dialects.claude.dialect import CLAUDE

__all__ = ["CLAUDE"]
