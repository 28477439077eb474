"""What sessiontree costs, measured against what the same work costs without it. `make bench` runs it.

Every figure is a ratio to a competitor in the same run (`peers`), or the memory or start-up time of a fresh process, so
that it means the same on any machine. Each measurement states its bound next to it; the run fails when one does not
hold. Sessions are generated (`generate`) into a scratch folder, `$SESSIONTREE_BENCH_DIR` or a temporary one, and are
used again by the next run.

    generate    a session of a given size, the same every time
    transcripts the same for a transcript of Claude Code
    texts       what both are made of
    peers       the competitors
    timing      taking times: in turns, and in child processes
    results     what a measurement gives, and the table of them
    reading     measurements of open and context
    claude      the same for transcripts of Claude Code
    writing     measurements of append
    starting    measurements of import and of the command
"""
