"""Methods: the table, its parts, which of them a policy supports, and which one to choose."""

METHOD_NAMES = (
    *("synchronous", "naive", "time-aligned", "pipelined-time-aligned", "weighted-average"),
    *("temporal-ensembling", "state-matching", "cross-fade", "committed-prefix", "pipelined-prefix"),
    *("vlash", "vlash-fixed-overlap", "vlash-fixed-overlap-n", "rtc", "pipelined-rtc", "rtc-identity"),
    *("rtc-hard", "bid", "remac", "xiaomi", "faster", "pipelined-faster", "averaged-samples", "a2c2"),
)
"""Names in `table.METHODS`, in its order, without importing it."""
AUTO, DEFAULT = "auto", "default"
"""Names of the method that suits policy and delay, and of the one that the policy was trained for."""
