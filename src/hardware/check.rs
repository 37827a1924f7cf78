//! Which profiles can be those of a device.

use super::{Device, DeviceProfile, UsableShare};
use crate::format::NumberFormat;
use crate::profile;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, UsdPerHour, Watts};
use std::fmt::Display;

/// A profile that cannot be that of a device.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A quantity is zero, negative, not a number, or beyond anything that exists.
    #[error("{value} is out of range, expected more than 0 and at most {limit}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The quantity, with its unit.
        value: String,
        /// The largest accepted quantity, with its unit.
        limit: String,
    },
    /// A number of devices is zero or beyond anything that exists.
    #[error("{value} devices, expected 1 to {limit}")]
    Domain {
        /// The key.
        key: String,
        /// The number.
        value: u32,
        /// The largest accepted number.
        limit: u32,
    },
    /// There is nothing that language models could be computed in.
    #[error("no peak for a float format, expected at least one of {}", FLOAT_NAMES)]
    NoFloatFormat,
    /// More memory is usable than there is.
    #[error("{usable} are usable of {capacity}, expected at most {limit}")]
    UsableAboveCapacity {
        /// Usable memory.
        usable: Bytes,
        /// Memory as sold.
        capacity: Bytes,
        /// The largest accepted quantity: the capacity with its prefix read as a binary one.
        limit: Bytes,
    },
    /// A share of the memory is not one, or the list does not rise.
    #[error("share {share} from {from}, expected more than 0 and at most 1, from small to large memories")]
    UsableShare {
        /// Memory that the share begins at.
        from: Bytes,
        /// The share.
        share: f64,
    },
    /// A fact names a source that the file does not list.
    #[error("source `{name}` is not in [sources]{hint}")]
    UnknownSource {
        /// The fact.
        key: String,
        /// The name of the source.
        name: String,
        /// The nearest one.
        hint: String,
    },
    /// A text that must not be empty is.
    #[error("is empty")]
    Empty {
        /// The key.
        key: &'static str,
    },
    /// The slug could not be a file name.
    #[error("`{slug}` has characters other than lower-case letters, digits, `-` and `.`")]
    Slug {
        /// The slug.
        slug: String,
    },
    /// The profile was written for another version of this crate.
    #[error("is {found}, this version reads {supported}")]
    SchemaVersion {
        /// The version in the profile.
        found: u32,
        /// The version understood.
        supported: u32,
    },
}

/// One of these must be present: every number format can fall back to each of them.
const FLOATS: [NumberFormat; 4] = [NumberFormat::Fp32, NumberFormat::Tf32, NumberFormat::Fp16, NumberFormat::Bf16];
const FLOAT_NAMES: &str = "fp32, tf32, fp16, bf16";

// A thousand times more than the largest device known in 2026 (a wafer of 44 GB, 21 PB/s and 23 kW; CPU sockets with 6 TB).
const CAPACITY_LIMIT: Bytes = Bytes::from_tb(10_000.0);
const BANDWIDTH_LIMIT: BytesPerSecond = BytesPerSecond::from_tb_per_second(20_000_000.0);
const PEAK_LIMIT: FlopsPerSecond = FlopsPerSecond::from_tflops_per_second(1e9);
const POWER_LIMIT: Watts = Watts::from_kilowatts(20_000.0);
const PRICE_LIMIT: UsdPerHour = UsdPerHour::from_usd_per_hour(1e6);
const DOMAIN_LIMIT: u32 = 1 << 20;

impl Device {
    /// A device with the facts of a profile.
    ///
    /// # Errors
    /// [`DeviceError`] for quantities that are not positive and finite, a profile without any float format, or a fact whose
    /// source is not listed.
    pub fn new(profile: DeviceProfile) -> Result<Self, DeviceError> {
        check_identity(&profile)?;
        check_quantities(&profile)?;
        let device = Self::from_checked(profile);
        check_sources(&device)?;
        Ok(device)
    }
}

fn check_identity(profile: &DeviceProfile) -> Result<(), DeviceError> {
    let (found, supported) = (profile.schema_version, DeviceProfile::SCHEMA_VERSION);
    if found != supported {
        return Err(DeviceError::SchemaVersion { found, supported });
    }
    for (key, text) in [("slug", &profile.slug), ("name", &profile.name), ("generation", &profile.generation)] {
        if text.trim().is_empty() {
            return Err(DeviceError::Empty { key });
        }
    }
    let fits_slug = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if !profile.slug.chars().all(fits_slug) {
        return Err(DeviceError::Slug { slug: profile.slug.clone() });
    }
    Ok(())
}

fn check_quantities(profile: &DeviceProfile) -> Result<(), DeviceError> {
    let memory = &profile.memory;
    let capacity = memory.capacity.value;
    within("memory.capacity", capacity, Bytes::ZERO, CAPACITY_LIMIT)?;
    within("memory.bandwidth", memory.bandwidth.value, BytesPerSecond::ZERO, BANDWIDTH_LIMIT)?;
    if let Some(usable) = memory.usable.as_ref().map(|fact| fact.value) {
        within("memory.usable", usable, Bytes::ZERO, CAPACITY_LIMIT)?;
        let limit = capacity * 1.1;
        if usable > limit {
            return Err(DeviceError::UsableAboveCapacity { usable, capacity, limit });
        }
    }
    check_usable_shares(&memory.usable_shares)?;
    if let Some(l2) = &memory.l2 {
        within("memory.l2", l2.value, Bytes::ZERO, CAPACITY_LIMIT)?;
    }
    let compute = &profile.compute;
    if FLOATS.iter().all(|&format| compute.get(format).is_none()) {
        return Err(DeviceError::NoFloatFormat);
    }
    for (key, peak) in compute.entries() {
        within(&format!("compute.{key}"), peak.value, FlopsPerSecond::ZERO, PEAK_LIMIT)?;
    }
    let links = &profile.links;
    if let Some(scale_up) = &links.scale_up {
        within("links.scale_up.bandwidth", scale_up.bandwidth.value, BytesPerSecond::ZERO, BANDWIDTH_LIMIT)?;
        if scale_up.domain == 0 || scale_up.domain > DOMAIN_LIMIT {
            let key = "links.scale_up.domain".into();
            return Err(DeviceError::Domain { key, value: scale_up.domain, limit: DOMAIN_LIMIT });
        }
    }
    if let Some(host) = &links.host {
        within("links.host.bandwidth", host.bandwidth.value, BytesPerSecond::ZERO, BANDWIDTH_LIMIT)?;
    }
    if let Some(scale_out) = &links.scale_out {
        within("links.scale_out", scale_out.value, BytesPerSecond::ZERO, BANDWIDTH_LIMIT)?;
    }
    if let Some(tdp) = &profile.power.tdp {
        within("power.tdp", tdp.value, Watts::ZERO, POWER_LIMIT)?;
    }
    for price in &profile.prices {
        within("prices.usd_per_hour", price.usd_per_hour, UsdPerHour::ZERO, PRICE_LIMIT)?;
    }
    Ok(())
}

/// Refuses NaN too.
fn check_usable_shares(shares: &[UsableShare]) -> Result<(), DeviceError> {
    for (index, &UsableShare { from, share }) in shares.iter().enumerate() {
        within("memory.usable_shares", from, Bytes::ZERO, CAPACITY_LIMIT)?;
        let rises = index == 0 || from > shares[index - 1].from;
        if !(share > 0.0 && share <= 1.0 && rises) {
            return Err(DeviceError::UsableShare { from, share });
        }
    }
    Ok(())
}

/// Refuses NaN too, which compares as neither more nor less than anything.
fn within<Q: Copy + PartialOrd + Display>(key: &str, value: Q, above: Q, limit: Q) -> Result<(), DeviceError> {
    if value > above && value <= limit {
        return Ok(());
    }
    Err(DeviceError::OutOfRange { key: key.into(), value: value.to_string(), limit: limit.to_string() })
}

fn check_sources(device: &Device) -> Result<(), DeviceError> {
    let known = &device.profile().sources;
    let facts = device.facts();
    let of_facts = facts.iter().map(|fact| (fact.key.as_str(), fact.source));
    let of_prices = device.prices().iter().map(|price| ("prices.source", price.source.as_str()));
    for (key, name) in of_facts.chain(of_prices) {
        if !known.contains_key(name) {
            let nearest = profile::nearest(name, known.keys().map(String::as_str));
            let hint = nearest.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
            return Err(DeviceError::UnknownSource { key: key.into(), name: name.into(), hint });
        }
    }
    Ok(())
}

impl DeviceError {
    /// The key of the profile that the error is about.
    pub fn key(&self) -> &str {
        match self {
            Self::OutOfRange { key, .. } | Self::Domain { key, .. } | Self::UnknownSource { key, .. } => key,
            Self::NoFloatFormat => "compute",
            Self::UsableAboveCapacity { .. } => "memory.usable",
            Self::UsableShare { .. } => "memory.usable_shares",
            Self::Empty { key } => key,
            Self::Slug { .. } => "slug",
            Self::SchemaVersion { .. } => "schema_version",
        }
    }
}
