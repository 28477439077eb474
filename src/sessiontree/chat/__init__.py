"""`sessiontree chat`: an agent in a terminal, line by line, and the /commands of every chat.

    line_editor    reads the user's input: with prompt_toolkit, or else as plain lines
    key_listener   reads keys while a run is in progress
    type_ahead     queues lines that are typed during a run
    styles         styles of lines
    terminal       output with colors, and without control characters from sessions
    event_printer  the events of a run as lines on the terminal
    user_prompts   approvals, choices from a list, calls that a crash left open
    commands/      the /commands
    lane_view      the lanes of /explore and the choice between them
    base_chat      what the line-by-line chat and the full-screen chat (`tui`) share
    conversation   the main loop of the line-by-line chat: prompts, commands, interrupts
    print_mode     one answer for a script (`--print`)

Front ends implement no behavior: `agent`, `branches`, `compaction` and other packages change sessions.
"""
