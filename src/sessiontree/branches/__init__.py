"""Compare, merge and list the branches of sessions.

    list, tips      branches and their last messages
    diff            two branches side by side
    merge, pick     merge a branch as a summary or message by message; copy chosen entries
    leave           switch to another branch, with a summary of the branch you leave
    merge_records   which entries are merges, and everything a path contains through them
    branch_delta    the entries that only one of two branches has
    replay          adapt messages for another branch, with complete pairs of tool calls and results
    summarize       summarize a branch
    file_conflicts  files that two branches changed differently
    open_files      processes that have a session file open for writing
    subagent_branches, subagent_sessions
                    sub-agents of our agent, on branches and in separate sessions

Rules of this package:

* Changes are appended in one write; existing lines are never changed.
* A merge is an ordinary `branch_summary` with a record in its `details`, which other readers ignore.
* A tool call is never copied without its results, nor a result without its call.
"""
