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
    gists, skimming  texts and calls of lines -> the gists of a path's messages
    titles, about  the session's name; its id, folder and origin
    tail        the parts of a large file that tell its context
    beside, discovery, places  the files around a transcript, where the client keeps them, what they are called
    copying     a new session that begins with the lines of another

Telling a session in canonical form, and writing one:

    history     the whole conversation of a leaf, also what stood before its compactions
    telling     lines that belong together -> items; `told` makes each of its lines
    blocks      the parts of a message, both ways
    differences what lines do not say of an item: into passthrough data, and back out of it
    encoder      the contract of writing; `speaking`, `answering`, `compacting` and `aside` write each kind of entry
    transcript  what they share: lines at their place, results held back, boundaries between branches
    sheets, standing  the fields and ids of lines; what stands where
    composing   messages -> content as the client writes it
    plain       the short way for ordinary messages, of which it is known what their lines do not say
    restoring   what rode along of the client's own lines, back where it still holds

The rules are those of client 2.1.325 as measured; `Reading` asks for the others.
"""

from sessiontree.dialects.claude.dialect import CLAUDE

__all__ = ["CLAUDE"]
