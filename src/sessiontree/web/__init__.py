"""`sessiontree serve`: the library in a browser, on this machine.

    server            starts everything: port, token, TLS
    app               routes and error pages
    security          access control: token, cookie, Host, Origin, limits, headers
    users             several users of a database, each with a token
    site              state shared by all requests: workbench, open sessions, plans, templates
    open_sessions     sessions that stay open between requests
    list_pages, session_pages, report_pages    pages that change nothing
    action_routes     changes: plan, confirm, undo
    live              sessions that grow on disk, as server-sent events
    chats, chat_routes    chats that are watched and steered
    explorations, explore_routes    explorations: lanes that are watched, steered and decided about
    questions         approval questions of both

Needs the extra `web`. Pages show what `app` and `views` compute; they implement no rules.
"""
