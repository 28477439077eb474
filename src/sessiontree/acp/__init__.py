"""Sessions in editors: an agent of the Agent Client Protocol (ACP) v1 on stdin and stdout.

`connection` is JSON-RPC, `requests` its parameters. `agent` has the methods, `chat` an open session, `updates` turns
messages and events of a run into notifications, and `session_index` finds and lists sessions by the protocol's ids.
"""
