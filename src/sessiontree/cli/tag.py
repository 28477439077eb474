"""Add tags to a session, or show its tags. Tags are stored by sessiontree; agents' files do not change.

Tags that the agent itself recorded are shown as well, and can only be removed there.
"""

from __future__ import annotations

import argparse

from sessiontree.app.actions.tags import plan_tag, tag_fields
from sessiontree.cli import output
from sessiontree.cli.archive_home import open_tags
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree tag 019c2f3a work urgent
  sessiontree tag 019c2f3a --remove urgent
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("tags", metavar="TAG", nargs="*", help="tags to add (default: show the tags)")
    parser.add_argument("--remove", action="store_true", help="remove these tags")
    add_root_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    plan = plan_tag(
        open_tags(session, options),
        session,
        add=() if options.remove else options.tags,
        remove=options.tags if options.remove else (),
    )
    tags = plan.do().result if options.tags else plan.expected
    of_client = session.client_notes.tags
    if options.json:
        output.print_json({**tag_fields(tags), "clientTags": list(of_client)})
    else:
        output.print_lines(clean(tag) for tag in dict.fromkeys((*tags.tags, *of_client)))
