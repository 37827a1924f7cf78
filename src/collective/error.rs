//! Numbers that no group of devices could have.

use crate::units::{BytesPerSecond, Seconds};

/// A group or a law that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A share of a bandwidth outside (0, 1].
    #[error("{key} is {value}, expected a share above 0 and at most 1")]
    Share {
        /// Which share.
        key: &'static str,
        /// The share.
        value: f64,
    },
    /// A time that is negative, infinite or not a number.
    #[error("{key} is {value}, expected a finite time that is not negative")]
    Time {
        /// Which time.
        key: &'static str,
        /// The time.
        value: Seconds,
    },
    /// A factor on all times that is not positive and finite.
    #[error("factor is {value}, expected a positive finite one")]
    Factor {
        /// The factor.
        value: f64,
    },
    /// A bandwidth that is not positive and finite.
    #[error("{key} is {value}, expected a positive finite bandwidth")]
    Bandwidth {
        /// Which bandwidth.
        key: &'static str,
        /// The bandwidth.
        value: BytesPerSecond,
    },
    /// A group of so many devices cannot fill so many nodes.
    #[error("a group of {size} devices on {nodes} nodes, expected 1 to {size} nodes")]
    Nodes {
        /// Nodes.
        nodes: u64,
        /// Devices.
        size: u64,
    },
}

pub(super) fn share(key: &'static str, value: f64) -> Result<(), CollectiveError> {
    if value > 0.0 && value <= 1.0 { Ok(()) } else { Err(CollectiveError::Share { key, value }) }
}

pub(super) fn time(key: &'static str, value: Seconds) -> Result<(), CollectiveError> {
    if value >= Seconds::ZERO && value.is_finite() { Ok(()) } else { Err(CollectiveError::Time { key, value }) }
}

pub(super) fn bandwidth(key: &'static str, value: BytesPerSecond) -> Result<(), CollectiveError> {
    let possible = value > BytesPerSecond::ZERO && value.is_finite();
    if possible { Ok(()) } else { Err(CollectiveError::Bandwidth { key, value }) }
}
