"""Line styles as ANSI codes: terminals get them unchanged, and screens map them to their own."""

from __future__ import annotations

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"
DIFF_STYLES = {"+": GREEN, "-": RED, "@": CYAN}
"""The style of a line of a diff, by its first character."""
