"""Sessions in editors: an Agent Client Protocol (ACP) v1 agent on stdin and stdout.

`connection` is JSON-RPC, `requests` its parameters. `agent` has the methods, `chat` an open session, `updates` turns
messages and events of a run into notifications, and `session_index` finds and lists sessions by the protocol's ids.
"""
