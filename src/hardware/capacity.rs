//! The same device with another amount of memory.

use super::{Device, DeviceError, Memory};
use crate::profile::{Provenance, Sourced};
use crate::units::Bytes;

impl Device {
    /// The same device sold with another amount of memory: a Mac with 36 GB instead of 128 GB, a card with 48 GB instead of 24.
    ///
    /// Memory is sold in binary gigabytes that are called gigabytes. So a whole number of decimal gigabytes means as many binary ones:
    /// `Bytes::from_gb(16.0)` and `Bytes::from_gib(16.0)` are the same Mac "16 GB". Any other number is taken as it is.
    ///
    /// # Formula
    /// `usable = installed x share`. Where the profile has a rule (`memory.usable_shares`: macOS), `share` is that of the largest
    /// `from` that is not above the installed memory. Elsewhere it is that of the profile, `usable / installed`. A device whose usable
    /// memory is unknown stays so, and [`Device::usable_memory`] is the given capacity.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] for a capacity that is not positive and finite.
    ///
    /// # Validity
    /// Bandwidth and peaks stay those of the profile, although makers also sell smaller memories on narrower buses. What macOS gives the
    /// GPU is its default, which `sysctl iogpu.wired_limit_mb` raises.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// use llm_roofline::units::Bytes;
    ///
    /// let mac = Catalog::embedded().device("Apple M4 Max")?.as_ref().clone();
    /// assert_eq!(format!("{:.2}", mac.usable_memory().as_gib()), "107.52"); // of 128 GB
    /// let smaller = mac.with_memory_capacity(Bytes::from_gb(36.0))?;
    /// assert_eq!(format!("{:.2}", smaller.usable_memory().as_gib()), "28.08"); // 78 % of 36 GiB
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # References
    /// Apple developer documentation, `MTLDevice.recommendedMaxWorkingSetSize`; measured sizes in ggml-org/llama.cpp#1870 and #16634,
    /// AlexsJones/llmfit#754, antirez/ds4#893.
    pub fn with_memory_capacity(self, capacity: Bytes) -> Result<Self, DeviceError> {
        let mut profile = self.into_profile();
        profile.memory.usable = rescaled(&profile.memory, capacity);
        profile.memory.capacity = Sourced::assumed(capacity);
        profile.sources.entry("caller".into()).or_insert_with(|| "given by the caller".into());
        Self::new(profile)
    }
}

/// What programs get of another capacity, derived from the profile's own.
fn rescaled(memory: &Memory, capacity: Bytes) -> Option<Sourced<Bytes>> {
    let usable = memory.usable.as_ref()?;
    let installed = installed(capacity);
    let reached = memory.usable_shares.iter().rev().find(|step| step.from <= installed);
    let share = reached
        .or(memory.usable_shares.first())
        .map_or(usable.value / self::installed(memory.capacity.value), |step| step.share);
    let note = format!("{:.1} % of {:.2} GiB", share * 100.0, installed.as_gib());
    Some(Sourced {
        value: installed * share,
        kind: Provenance::Assumed,
        source: usable.source.clone(),
        note: Some(note),
    })
}

/// The bytes behind a capacity as sold. Fewer than 1,953,125 (5^9) whole binary gigabytes are never
/// a whole number of decimal ones.
fn installed(capacity: Bytes) -> Bytes {
    let gigabytes = capacity.as_gb();
    if gigabytes >= 1.0 && gigabytes.fract() == 0.0 { Bytes::from_gib(gigabytes) } else { capacity }
}
