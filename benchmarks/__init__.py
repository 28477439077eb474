"""Benchmarks of sessiontree against the same work without it. `make bench` runs them.

Every figure is a ratio to a competitor in the same run (`peers`), or the memory or start-up time of a new process. So
it means the same on any machine. Each benchmark states its bound; the run fails if one does not hold. Sessions are
generated (`generate`) into a scratch folder, `$SESSIONTREE_BENCH_DIR` or a temporary one, and reused by the next run.

    generate     a reproducible session of a given size
    transcripts  the same for a Claude Code transcript
    corpus       many sessions of several agents
    texts        text for generated sessions
    peers        the competitors
    timing       timers: in turns, and in child processes
    results      results and their table
    against      the same benchmarks in another checkout
    read         open and context
    claude       open and context for Claude Code transcripts
    append       append
    startup      import and start of the command
"""
