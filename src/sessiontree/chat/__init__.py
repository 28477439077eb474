"""`sessiontree chat`: an agent in a terminal, line by line.

    reading     what a person types: with prompt_toolkit, or plain lines where that is not there or nobody types
    listening   keys that are pressed while something is under way
    ahead       what is typed meanwhile: queued, and shown and done in its turn
    screen      what a person sees: every text made harmless, colours only where they are wanted
    telling     the events of a run as lines on the screen
    asking      questions: approvals, choices from a list, calls that a crash left open
    starting    from what was asked for to a controller with a session in hand
    commands    /words in a table; what each does is in in_sessions, in_tree, rewinding, choosing and looking
    exploring   /explore; lanes shows them and asks what becomes of them, lane_plans and lane_questions help
    talking     the conversation itself: prompts, commands, interrupts
    printing    one answer for a script (`--print`)
    models      which model is meant, and what to do when none is configured
    demo        a scripted conversation with real tools, to try everything without a key

It owns no behaviour of sessions: what it does to one is done by `agent`, `branching`, `compacting` and the others.
"""
