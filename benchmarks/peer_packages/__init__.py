"""Published packages beside ours, in one run: `make bench-peers`. They are installed into scratch folders first.

__main__        install the packages, run everything, print tables in Markdown
stores          one session store of a framework behind the interface that is measured
store_costs     measure one store in a process of its own, in the environment of its framework
loaders         open a session of 100 MB and build its context: Pi, oh-my-pi, json.loads, ours
libraries       list and search 200 sessions: fast-resume, claude-agent-sdk, ours
"""
