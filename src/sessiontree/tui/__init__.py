"""The terminal UI, built on Textual. It draws and reads keys; all behavior is in `app`.

app             the application
sessions        the list of sessions, with session_rows and preview_panel
tree            the tree of a session, with entry_panel
chat            the chat, with chat_host (its front end), chat_transcript, chat_blocks, chat_events, chat_editor,
                chat_dialogs, chat_screens and chat_status
pictures        images of a chat, with image_facts, image_size, image_protocols and sixel
explore_board   the lanes of an exploration
action_flow     plan, confirm, carry out and undo actions
key_table       the keys of a screen: bindings, footer and help
line_list       a list that renders only its visible rows
rendered_panel  a panel whose content is rendered in the background
dialogs         questions on top of a screen
requests        what the user asked for when the screens closed
"""
