//! Where replicas report what happens.

use super::log::{EventKind, Log};
use super::sequence::Sequence;
use super::statistics::{CompletedRequest, Recorder};
use crate::units::Seconds;

/// A request whose prompt has been computed here, and whose answer is written elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handoff<'a> {
    pub(super) sequence: Sequence<'a>,
    /// The replica that has its cache.
    pub(super) from: u32,
    /// Seconds from its admission to its first token.
    pub(super) computed_in: f64,
    pub(super) at: f64,
}

/// Everything that replicas tell.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    pub(super) recorder: Recorder,
    pub(super) log: Option<Log>,
    /// Answers that have ended since somebody looked, and when the last one did.
    pub(super) ended: u64,
    pub(super) ended_at: f64,
    pub(super) handoffs: Vec<Handoff<'a>>,
}

impl Sink<'_> {
    #[inline]
    pub(super) fn log(&mut self, time: f64, replica: u32, request: u64, kind: EventKind) {
        if let Some(log) = &mut self.log {
            log.push(time, replica, Some(request), kind);
        }
    }

    #[inline]
    pub(super) fn log_replica(&mut self, time: f64, replica: u32, kind: EventKind) {
        if let Some(log) = &mut self.log {
            log.push(time, replica, None, kind);
        }
    }

    /// An answer has come to its end.
    #[inline]
    pub(super) fn answered(&mut self, sequence: &Sequence<'_>, end: f64) {
        self.ended += 1;
        self.ended_at = end;
        let asked = &sequence.asked;
        self.recorder.completed(&CompletedRequest {
            id: asked.id,
            class: asked.class,
            prompt_tokens: asked.prompt,
            cached_tokens: sequence.found,
            output_tokens: asked.output,
            arrival: Seconds::from_seconds(asked.arrival),
            admitted: Seconds::from_seconds(sequence.admitted),
            first_token: Seconds::from_seconds(sequence.first_token),
            last_token: Seconds::from_seconds(end),
            preemptions: sequence.preemptions,
        });
    }
}
