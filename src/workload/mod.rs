//! What is asked of a deployment: arrivals, lengths, shared prefixes, classes of requests, traces.
