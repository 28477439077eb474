"""`sessiontree chat`: an agent in a terminal, line by line.

    reading     what a person types: with prompt_toolkit, or plain lines where that is not there or nobody types
    screen      what a person sees: every text made harmless, colours only where they are wanted
    telling     the events of a run as lines on the screen
    asking      questions: approvals, choices from a list, calls that a crash left open
    starting    from what was asked for to a controller with a session in hand
    commands    /words in a table; what each does is in in_sessions, in_tree, rewinding, choosing and looking
    talking     the conversation itself: prompts, commands, interrupts
    printing    one answer for a script (`--print`)
    models      which model is meant, and what to do when none is configured
    demo        a scripted conversation with real tools, to try everything without a key

It owns no behaviour of sessions: what it does to one is done by `agent`, `branching`, `compacting` and the others.
"""
