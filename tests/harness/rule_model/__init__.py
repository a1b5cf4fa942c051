"""A random model of one partition around the production rule: a source that is compacted and may
lose records, runs of stage one that are planned, overlap and never quite end, an intermediate topic
that does with envelopes whatever it likes, and a stage two whose transactions fail.

It checks the invariant of `deduplicator.rule` whenever an envelope is accepted, and at the end,
when everything has arrived and new runs have copied the rest: every visible record up to the
frontier is at the destination, once, in order, and as the filter of its time wants it.

The rule, the epochs and the heads of envelopes are the production's. A seed chooses what happens,
so a schedule can be repeated. `Variant` has what a test may replace by something wrong.

    source.py        the source topic, and the filter
    envelopes.py     an envelope, with what a real one does not say
    stage_one.py     runs, their Spark tasks, and the planner
    stage_two.py     the rule, what is written, and the checks
    schedule.py      what happens next
    small_worlds.py  apart from these: every sequence of a few events, without chance
"""
