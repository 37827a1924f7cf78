//! What a device must hold, part by part, and what is missing.

use super::Suggestion;
use crate::units::Bytes;
use std::fmt;

/// What each device of one place must hold for a number of sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPlan {
    /// Weights of one device as loaded: replicated parts, padding and tables included.
    pub weights: Bytes,
    /// The same of the drafter for speculative decoding, without what it shares with the model.
    pub drafter_weights: Bytes,
    /// Key-value cache of one device, the drafter's included, in whole blocks where the engine has blocks.
    pub kv_cache: Bytes,
    /// Recurrent state of one device.
    pub state: Bytes,
    /// Activations at the peak of the largest step, logits included.
    pub activations: Bytes,
    /// Captured graphs, where they come out of the engine's budget.
    pub graphs: Bytes,
    /// The driver's context, libraries and communication buffers.
    pub overhead: Bytes,
    /// Memory of one device that the engine may use for all of these.
    pub capacity: Bytes,
    /// Memory of one device that programs can see; what is above `capacity` the engine keeps free.
    pub visible: Bytes,
}

/// Above this share of use it gets tight.
const TIGHT: f64 = 0.95;

/// A part of the memory need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryPart {
    /// Weights.
    Weights,
    /// Weights of the drafter for speculative decoding.
    Drafter,
    /// Key-value cache.
    KvCache,
    /// Recurrent state.
    State,
    /// Activations of the largest step.
    Activations,
    /// Captured graphs.
    Graphs,
    /// Context of the driver, libraries, communication.
    Overhead,
}

impl MemoryPart {
    /// Every part, in the order in which engines allocate them.
    pub const ALL: [Self; 7] =
        [Self::Overhead, Self::Weights, Self::Drafter, Self::Activations, Self::Graphs, Self::State, Self::KvCache];
}

impl fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weights => "weights",
            Self::Drafter => "weights of the drafter",
            Self::KvCache => "cached keys and values",
            Self::State => "recurrent states",
            Self::Activations => "activations",
            Self::Graphs => "captured graphs",
            Self::Overhead => "context and libraries",
        })
    }
}

impl MemoryPlan {
    /// Everything together.
    pub fn needed(&self) -> Bytes {
        self.fixed() + self.kv_cache + self.state
    }

    /// Everything that does not depend on the sequences: what the cache has to share the capacity with.
    pub fn fixed(&self) -> Bytes {
        self.weights + self.drafter_weights + self.activations + self.graphs + self.overhead
    }

    /// Whether the device has enough.
    pub fn fits(&self) -> bool {
        self.needed() <= self.capacity
    }

    /// What is missing; nothing if it fits.
    pub fn short_by(&self) -> Bytes {
        (self.needed() - self.capacity).max(Bytes::ZERO)
    }

    /// What is left over; nothing if it does not fit.
    pub fn spare(&self) -> Bytes {
        (self.capacity - self.needed()).max(Bytes::ZERO)
    }

    /// Share of the capacity that is used; more than 1 if it does not fit.
    pub fn utilization(&self) -> f64 {
        if self.capacity > Bytes::ZERO { self.needed() / self.capacity } else { f64::MAX }
    }

    /// A sentence where more than 95 % of what may be used is taken, or more than there is.
    ///
    /// Fragmentation and other programs may then break what fits on paper, and decode falls by tens of times where anything has to be fetched
    /// from elsewhere in every step.
    pub fn warning(&self) -> Option<String> {
        let percent = 100.0 * self.utilization();
        match self.fits() {
            true if self.utilization() <= TIGHT => None,
            true => Some(format!(
                "{percent:.1} % of the memory that may be used is taken: a little more and the engine refuses, preempts or swaps"
            )),
            false => Some(format!("{percent:.0} % of the memory that may be used is needed")),
        }
    }

    /// One part.
    pub const fn part(&self, part: MemoryPart) -> Bytes {
        match part {
            MemoryPart::Weights => self.weights,
            MemoryPart::Drafter => self.drafter_weights,
            MemoryPart::KvCache => self.kv_cache,
            MemoryPart::State => self.state,
            MemoryPart::Activations => self.activations,
            MemoryPart::Graphs => self.graphs,
            MemoryPart::Overhead => self.overhead,
        }
    }

    /// The largest part.
    pub fn largest(&self) -> MemoryPart {
        let larger = |a: MemoryPart, b: MemoryPart| if self.part(b) > self.part(a) { b } else { a };
        MemoryPart::ALL.into_iter().fold(MemoryPart::Weights, larger)
    }
}

/// Where a part of a model lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// On every device: there is one stage.
    Devices,
    /// On the devices of one stage of a pipeline, counted from 1.
    Stage {
        /// Number of the stage.
        stage: u32,
        /// Stages there are.
        of: u32,
    },
    /// In the memory of the host.
    Host,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Devices => f.pad("each device"),
            Self::Stage { stage, of } => f.pad(&format!("each device of stage {stage} of {of}")),
            Self::Host => f.pad("the host"),
        }
    }
}

/// A place that has too little memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shortage {
    /// Which.
    pub location: Location,
    /// Missing on each device there.
    pub short_by: Bytes,
    /// The parts of the need.
    pub plan: MemoryPlan,
}

/// The deployment needs more memory than its devices have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "does not fit: {location} ({devices} device(s) in all) needs {needed} but may use {}, short by {short_by}; the largest part \
     are the {largest} ({}){}",
    .plan.capacity, .plan.part(*.largest), first_suggestion(.suggestions)
)]
#[non_exhaustive]
pub struct DoesNotFit {
    /// Devices of a replica.
    pub devices: u32,
    /// Where most is missing.
    pub location: Location,
    /// Needed on each device there.
    pub needed: Bytes,
    /// Missing on each device there.
    pub short_by: Bytes,
    /// The largest part of the need.
    pub largest: MemoryPart,
    /// The parts.
    pub plan: MemoryPlan,
    /// Every place that has too little.
    pub shortages: Vec<Shortage>,
    /// What would make it fit; each was tried.
    pub suggestions: Vec<Suggestion>,
}

impl DoesNotFit {
    /// The suggestions, a line each, under a heading.
    pub fn help(&self) -> String {
        match self.suggestions.is_empty() {
            true => "nothing that was tried makes it fit\n".into(),
            false => {
                let lines = self.suggestions.iter().map(|suggestion| format!("- {suggestion}\n"));
                lines.fold("it would fit\n".into(), |all: String, line| all + &line)
            }
        }
    }
}

fn first_suggestion(suggestions: &[Suggestion]) -> String {
    suggestions.first().map(|suggestion| format!("; it would fit {suggestion}")).unwrap_or_default()
}
