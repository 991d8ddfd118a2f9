"""The table of methods: its parts, which of them a policy can take, and which one to choose."""

METHOD_NAMES = (
    *("synchronous", "naive", "time-aligned", "pipelined-time-aligned", "weighted-average"),
    *("temporal-ensembling", "state-matching", "cross-fade", "committed-prefix", "pipelined-prefix"),
    *("vlash", "vlash-fixed-overlap", "vlash-fixed-overlap-n", "rtc", "pipelined-rtc", "rtc-identity"),
    *("rtc-hard", "bid", "remac", "xiaomi", "faster", "pipelined-faster", "averaged-samples", "a2c2"),
)
"""Names in `table.METHODS`, in its order, without importing it."""
AUTO, DEFAULT = "auto", "default"
"""The one that suits policy and delay; the one that the policy was trained for."""
