"""All work with git, through its command line: repositories, worktrees, snapshots of uncommitted files."""
