//! What happened when, for timelines.

use crate::units::Seconds;

/// Something that happened to a request or to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// The request came to a replica.
    Queued,
    /// It got a place.
    Admitted,
    /// Its first token was emitted.
    FirstToken,
    /// It lost its place, and will be computed again or moved back.
    Preempted,
    /// Its cache has been sent to the replica that goes on.
    Transferred,
    /// Its replica was lost; it goes to another one.
    Lost,
    /// Its last token was emitted.
    Answered,
    /// The replica stopped.
    ReplicaDown,
    /// The replica takes requests.
    ReplicaUp,
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// When, from the start of the run.
    pub time: Seconds,
    /// What.
    pub kind: EventKind,
    /// Where, by the number of the replica.
    pub replica: u32,
    /// To whom, by the number of the request; none where it is about the replica alone.
    pub request: Option<u64>,
}

/// The first so many events.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) events: Vec<Event>,
    pub(super) limit: usize,
}

impl Log {
    pub(super) fn push(&mut self, time: f64, replica: u32, request: Option<u64>, kind: EventKind) {
        if self.events.len() < self.limit {
            self.events.push(Event { time: Seconds::from_seconds(time), kind, replica, request });
        }
    }
}
