"""The history of groups, and what rebalances cost: a batch job over `__group_ledger` and `__consumer_offsets`.

    Kafka's records ──▶ commit_filter ──▶ records, by group and time ──▶ group_analysis ──▶ tables, page, report
                                               (one shuffle)               (per group)

`records` is the common form of both topics. `commit_filter` drops most of the commits, which are nearly all of the
records. `group_analysis` processes the records of one group in order, with `rebalances`, `ownership`, `flapping`,
`double_ownership`, `static_membership_savings`, `registration_savings` and `standby_savings`; their memory is bounded
by the number of members and partitions. All of these are plain Python without Spark. `spark_tasks` runs them on the
executors, `job` is the Spark job around it, and `delta_tables` commits the files of the executors. `timeline` has the
owners over time, for `html_report` and `png_report`, which need no Spark either.
"""
