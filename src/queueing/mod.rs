//! Queueing theory as pure mathematics: it knows arrivals and services, and nothing of language models.
