"""Acceptance tests: the real programs read our files, and we compare the history they rebuild with ours.

    programs      install the real programs into a scratch folder
    model_server  a scripted model on 127.0.0.1
    network       run a program without network except loopback, in a private home, with a time limit
    histories     the history that a program rebuilds from a session file
    drivers       how each program is started or resumed with a prompt
    requests      the history in the requests of a program
    directives    prompts that determine what the scripted model answers
    live_samples  a session of each agent, made by its program
    matrix        the session of each agent, resumed in every program
    chats         sessions that our own chat writes
    explorations  sessions that our own explorations write
    sources       all sessions that are tested
    comparison    compare two histories
    cases         pairs of session and program, and their outcomes
    turns         one file that our library and a program continue in turns
    trees         generated sessions of Pi and oh-my-pi
    contexts      every branch of many files, compared in one process of the program
    transcripts   transcripts of Claude Code, generated from a seed
    edits         our own operations on generated transcripts
    generated     run generated sessions, reduce and save those that differ
    results       the table, the JSON and the exit code

Nothing of the programs is part of this repository, and nothing here is part of the package.
"""
