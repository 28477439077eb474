"""Sessions as HTML: the same templates, style and scripts for the exported file and for `sessiontree serve`.

    environment       templates, with every text sanitized and escaped
    template_cache    compiled templates, stored with Python's bytecode
    markdown_renderer, code_highlighter, edit_diff    the content of messages
    cards             records as cards: one for each prompt, answer and remark
    subagents         sub-agents inside of the calls that started them
    branch_graph      the data of the picture of branches
    page              the exported file
    diff_page         two branches side by side

Imports of jinja2, markdown-it-py and Pygments are only here and in `sessiontree.web`.
"""

from sessiontree.export.html.page import render_html

__all__ = ["render_html"]
