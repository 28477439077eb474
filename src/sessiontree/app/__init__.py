"""Everything that front ends have in common. They display data and pass on users' decisions.

    start         a chat from options: model, tools, system prompt, controller, session
    exploration   lanes from options, new or resumed
    actions/      what users do to sessions: plan, show, do, undo
    event_json    events of runs and explorations as JSON
    summaries     the summarizer and summary options that the settings name
    demo          a scripted model and its project

Nothing here prints, asks, or parses arguments.
"""
