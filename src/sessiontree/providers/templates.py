"""Text templates for content that providers' APIs have no message type for: commands, files, summaries."""

from __future__ import annotations

import re

from sessiontree.core.messages import BashExecution

NO_RESULT = (
    "No result was recorded for this tool call, so its outcome is unknown: it may have run fully, in part or not at "
    "all. Check before relying on it or repeating it."
)
NO_OUTPUT = "(no output)"
NO_USER_BEFORE = "(The record begins with the assistant. What was said before is not known.)"
NO_USER_BETWEEN = "(No user message was recorded between the assistant's last message and its next one.)"


def command_text(execution: BashExecution) -> str:
    """Render a shell command that the user ran, with its result."""
    return _execution_text("The user ran this command:", execution)


def python_text(execution: BashExecution) -> str:
    """Render Python code that the user ran, with its result."""
    return _execution_text("The user ran this Python code:", execution)


def stray_result_text(tool: str, *, is_error: bool) -> str:
    """Introduce the result of a tool call that was not recorded."""
    name = f" {tool}" if tool else ""
    return f"The tool{name} was called; the call was not recorded. It {'failed with' if is_error else 'returned'}:"


def compaction_text(summary: str) -> str:
    """Render the summary of a compaction."""
    return _summary_text("The earlier part of this conversation was compacted. This summary replaces it:", summary)


def branch_text(summary: str) -> str:
    """Render the summary of another branch."""
    opening = "Another branch of this conversation was followed for a while and then left. This happened on it:"
    return _summary_text(opening, summary)


def file_text(path: str, content: str | None) -> str:
    """Render a file that the user mentioned, with its recorded content."""
    if content is None:
        return f"The user mentioned the file {path}; no text of it was recorded."
    return f"The user mentioned the file {path}, which held:\n\n{_fenced(content)}"


def _execution_text(opening: str, execution: BashExecution) -> str:
    parts = [opening, _fenced(execution.command)]
    if execution.output.strip():
        parts += ["It printed:", _fenced(execution.output)]
    else:
        parts.append("It printed nothing.")
    parts += _endings(execution)
    return "\n\n".join(parts)


def _endings(execution: BashExecution) -> list[str]:
    endings = []
    if execution.truncated:
        where = f" All of it is in {execution.full_output_path}." if execution.full_output_path else ""
        endings.append(f"The output was cut.{where}")
    if execution.cancelled:
        endings.append("The user stopped it before it ended.")
    if execution.exit_code:
        endings.append(f"It ended with exit code {execution.exit_code}.")
    return endings


def _summary_text(opening: str, summary: str) -> str:
    return f"{opening}\n\n<summary>\n{summary}\n</summary>"


def _fenced(text: str) -> str:
    # A fence must be longer than any run of backticks inside it, or the text would end there.
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
