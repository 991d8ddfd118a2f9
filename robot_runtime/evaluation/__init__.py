"""Episodes of any `Env` under a virtual clock: latency traces, the loop, results and their statistics."""
