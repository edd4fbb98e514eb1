"""What happened to groups, and what it cost: a batch job over `__group_ledger` and `__consumer_offsets`.

    records ──▶ thinning ──▶ facts, by group and time ──▶ life ──▶ tables, page, report
    (Kafka's)   (commits)        (one shuffle)          (per group)

`facts` are what both topics say, in one form. `thinning` leaves of the commits, which are nearly all there is, those
that tell something. `life` follows one group from its first fact to its last, with `rebalances`, `ownership`,
`flapping`, `two_owners`, `returns`, `scale_ups` and `losses` each looking for one thing; none of them keeps more than
the group has members and partitions, and what can still change. All of these are plain Python and know nothing of
Spark. `executing` runs them on the executors, `job` is the Spark job around it. `timeline` is who owned what, for
`page` (HTML) and `picture` (PNG), which need no Spark either.
"""
