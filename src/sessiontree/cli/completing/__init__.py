"""What can stand where the cursor is: asked by the shells' scripts, answered from the parsers of the commands.

    asking      which argument the words on the line lead to, and the options that are left
    values      what fits there: sessions, entries, dialects, things in the archive
    quoting     words as they were typed -> without their quotes
    answering   both together: the words of a line -> the answer that the scripts read
    script.*    one script per shell; it knows how to ask and how to show, and no command or option

Nothing is written twice: a command that is added to the parser is completed at once. Session content in an answer
(titles, labels, names of files) is untrusted: see `answering.Candidate`.
"""
