"""The acceptance run: the real programs read what we wrote, and we compare what they rebuilt with what we say.

    programs      installs the real programs into a scratch folder
    model_server  a scripted model on 127.0.0.1
    network       runs a program with no network but loopback, no home of its own and a time limit
    histories     asks a program what it rebuilds from a session file
    chats         sessions that our own chat writes
    sources       the sessions that are tried
    comparing     two histories -> a short difference, or none
    cases         which session goes to which program, and how each case ended
    results       the table, the JSON and the exit code

Nothing of the programs is part of this repository, and nothing here is part of the package.
"""
