//! Replicas that are lost, return, or are added and taken away by a rule.

use crate::serving::ServingError;
use crate::serving::error::{above_zero, not_negative};
use crate::units::Seconds;
use std::fmt;

/// A replica that is lost for a while: what it was working on starts again elsewhere, with the tokens that were sent as part of the prompt, and its
/// cache is empty when it returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Which, counted from 0.
    pub replica: u32,
    /// When it is lost.
    pub at: Seconds,
    /// When it takes requests again; none if it does not return.
    pub until: Option<Seconds>,
}

/// What a rule for the number of replicas sees.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FleetView {
    /// Time since the start.
    pub time: Seconds,
    /// Replicas that take requests.
    pub up: u32,
    /// Replicas that are starting.
    pub starting: u32,
    /// Sequences that have places.
    pub running: u64,
    /// Requests that wait for a place.
    pub waiting: u64,
    /// Share of the time since the rule was asked last in which replicas were busy.
    pub utilization: f64,
    /// Share of the cache of the replicas that are up in use.
    pub kv_utilization: f64,
    /// Requests per second that arrived since the rule was asked last.
    pub arrival_rate: f64,
}

/// A user's rule for how many replicas there should be.
#[derive(Clone, Copy)]
pub struct Autoscaler<'a> {
    pub(super) interval: f64,
    pub(super) start_up: f64,
    pub(super) fewest: u32,
    pub(super) rule: &'a (dyn Fn(&FleetView) -> u32 + Sync),
}

impl<'a> Autoscaler<'a> {
    /// Asks `rule` every `interval` how many replicas there should be; a new one takes requests after `start_up`. There are never fewer than
    /// `fewest`, with which the run starts, nor more than the simulation has.
    ///
    /// # Errors
    /// [`ServingError::Number`] for an interval that is not above 0, a negative start-up, or no replicas at all.
    pub fn new(
        interval: Seconds,
        start_up: Seconds,
        fewest: u32,
        rule: &'a (dyn Fn(&FleetView) -> u32 + Sync),
    ) -> Result<Self, ServingError> {
        if fewest == 0 {
            let expected = "1 or more";
            return Err(ServingError::Number { what: "fewest replicas", value: 0.0, expected });
        }
        Ok(Self {
            interval: above_zero("the interval of the autoscaler in seconds", interval.as_seconds())?,
            start_up: not_negative("the start-up of a replica in seconds", start_up.as_seconds())?,
            fewest,
            rule,
        })
    }
}

impl fmt::Debug for Autoscaler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interval, start_up, fewest, .. } = self;
        write!(f, "Autoscaler {{ interval: {interval} s, start_up: {start_up} s, fewest: {fewest} }}")
    }
}

/// What happens to replicas at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Control {
    Down(u32),
    Up(u32),
    Scale,
}
