"""Branches worth making, because they can be compared and brought together again.

    sides      what one branch has that another has not, told in shared words
    joins      which entries are merges, and what a path already took in through them
    files      what each side did to which file, and where the two are at odds
    replay     messages of one branch made fit to stand on another, with tool calls and results whole
    summing    a branch as a summary: what of it a summarizer is shown
    leaving    the summary that stays where a branch was left
    merge      one branch brought into another: as a summary, or message by message
    pick       chosen entries, brought behind another one
    diff       two branches side by side
    ends, branches  where branches end; what is known of each
    writers    who has the file of a session open for writing

Rules of this package:

* Nothing but appends. What is brought is written behind the place it is brought to, in one write; every line that was
  there stays as it is.
* A join is an ordinary `branch_summary`. That it is one stands in its `details`, where readers that know nothing of
  merges do not look.
* A tool call never travels without its results, nor a result without its call.
"""
