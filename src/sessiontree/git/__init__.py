"""All work with git, by its command line: repositories, worktrees, snapshots of uncommitted files."""
