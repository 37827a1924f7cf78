//! Questions that a planner cannot answer.

use crate::catalog::CatalogError;
use crate::deployment::SpecError;
use crate::hardware::{DeviceError, SystemError};
use crate::request::RequestError;
use crate::serving::ServingError;
use crate::speculative::SpeculationError;
use crate::step::{CompileError, SensitivityError};
use crate::workload::WorkloadError;

/// Why there is no answer: for a whole question, or for one deployment of many.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlannerError {
    /// The deployment is impossible.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The load cannot be served.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// The request cannot be answered.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The device with other specifications is none.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no such number of devices.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A number of the data sheet cannot be changed as asked.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The drafter is impossible.
    #[error(transparent)]
    Speculation(#[from] SpeculationError),
    /// The description of the load is wrong.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Nobody's price of the device is known.
    #[error("no price of {device} is known{}: state one with PriceChoice::Fixed", .provider.as_ref().map(|of| format!(" from {of}")).unwrap_or_default())]
    NoPrice {
        /// Name of the device.
        device: String,
        /// Whose price was asked for, if it had to be somebody's.
        provider: Option<String>,
    },
    /// The power of the device is not known.
    #[error("the thermal design power of {device} is not known")]
    NoPower {
        /// Name of the device.
        device: String,
    },
    /// A number that is no number of what it should count.
    #[error("{what} is {value}, expected {expected}")]
    Number {
        /// What it is.
        what: &'static str,
        /// The value.
        value: f64,
        /// What would do.
        expected: &'static str,
    },
    /// A list with nothing in it.
    #[error("{what}: there is nothing in the list, expected at least one")]
    Empty {
        /// What is listed.
        what: &'static str,
    },
    /// The caller wanted no more.
    #[error("stopped by the caller")]
    Cancelled,
    /// A name that leads to no profile.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A name that is none of those that are valid.
    #[error("no {what} is called `{name}`{}, expected one of {}", did_you_mean(.nearest.as_deref()), .expected.join(", "))]
    Unknown {
        /// What was named.
        what: String,
        /// The name.
        name: String,
        /// The valid names.
        expected: Vec<String>,
        /// A similar one among them.
        nearest: Option<String>,
    },
    /// Something that may be there once only.
    #[error("`{name}` is there twice as {what}, expected once")]
    Repeated {
        /// What it is.
        what: String,
        /// Its name.
        name: String,
    },
    /// A text that says nothing that is understood.
    #[error("`{text}` is no {what}: {reason}")]
    Unreadable {
        /// What was expected.
        what: &'static str,
        /// The text.
        text: String,
        /// Why it is not understood.
        reason: String,
    },
    /// Labels that are not as many as the values they stand for.
    #[error("{found} labels for the {expected} values of the axis {axis}, expected one for each")]
    Labels {
        /// The axis.
        axis: &'static str,
        /// Labels that were given.
        found: usize,
        /// Values.
        expected: usize,
    },
    /// A cell is asked for, and it is not said where it lies on an axis of several values.
    #[error("the axis {axis} has {values} values: say which")]
    Unplaced {
        /// The axis.
        axis: &'static str,
        /// Its values.
        values: usize,
    },
    /// Devices that are no multiple of what a replica takes.
    #[error("{devices} devices are no multiple of {group}, the devices of one replica: some would be idle or missing")]
    DoesNotDivide {
        /// Devices of the system.
        devices: u32,
        /// Devices of a replica, or what its tensor parallelism is multiplied with.
        group: u32,
    },
    /// A question that has no answer of this kind.
    #[error("there is no answer for {what}: {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}

impl From<SensitivityError> for PlannerError {
    fn from(error: SensitivityError) -> Self {
        match error {
            SensitivityError::Spec(error) => Self::Spec(error),
            SensitivityError::Compile(error) => Self::Compile(error),
        }
    }
}

/// The value, if it is finite and above 0.
pub(super) fn above_zero(what: &'static str, value: f64) -> Result<f64, PlannerError> {
    let expected = "a finite number above 0";
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(PlannerError::Number { what, value, expected }) }
}

/// The value, if it is finite and not negative.
pub(super) fn not_negative(what: &'static str, value: f64) -> Result<f64, PlannerError> {
    let expected = "a finite number, 0 or more";
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err(PlannerError::Number { what, value, expected }) }
}

/// The value, if it is a share from 0 to 1.
pub(super) fn share(what: &'static str, value: f64) -> Result<f64, PlannerError> {
    let expected = "a number from 0 to 1";
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(PlannerError::Number { what, value, expected }) }
}
