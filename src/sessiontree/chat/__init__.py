"""`sessiontree chat`: an agent in a terminal, line by line.

    line_editor    reads what the user types: with prompt_toolkit, or plain lines without it or without a terminal
    key_listener   reads keys while a run is in progress
    type_ahead     queues what is typed meanwhile
    terminal       output: control characters removed, colors if wanted
    event_printer  the events of a run as lines on the terminal
    user_prompts   approvals, choices from a list, calls that a crash left open
    commands/      the /commands
    lane_view      the lanes of /explore and the choice between them
    conversation   the main loop: prompts, commands, interrupts
    print_mode     one answer for a script (`--print`)

Front ends own no behavior: sessions are changed by `agent`, `branches`, `compaction` and the other packages.
"""
