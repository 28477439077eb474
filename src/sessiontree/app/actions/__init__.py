"""Actions on sessions for every front end: plan, show, do, undo.

    contract    the interface of all actions: `ActionPlan`, `Description`, `Done`
    table       all actions with their titles, arguments and the sessions they work on
    files       the undo of actions that write new files

The other modules have the actions, one kind each.
"""
