//! What tools for load tests report, from the times of requests: latencies, percentiles, goodput.
