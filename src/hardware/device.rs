//! One device and the questions that a roofline asks of it.

use super::{Compute, DeviceError, DeviceProfile, HostLink, Links, Memory, Power, Price, ScaleUp};
use crate::format::NumberFormat;
use crate::profile::{Provenance, Sourced, Sources};
use crate::units::{Bytes, BytesPerSecond, FlopsPerByte, FlopsPerSecond, Watts};
use std::fmt::{self, Display};

/// One accelerator or CPU as sold, with checked facts: positive, finite, sourced.
///
/// Made from a profile file ([`Device::from_toml`]), from three numbers ([`Device::from_specs`]), or from a changed profile of
/// another device ([`Device::into_profile`], [`Device::new`]) to ask what would be if.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    profile: DeviceProfile,
}

/// A fact about a device and where it comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fact<'a> {
    /// The key in the profile, such as `memory.bandwidth`.
    pub key: String,
    /// The value with its unit.
    pub value: String,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the profile.
    pub source: &'a str,
    /// Disagreements and remarks.
    pub note: Option<&'a str>,
}

impl Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)?;
        self.note.map_or(Ok(()), |note| write!(f, " ({note})"))
    }
}

impl Device {
    /// A device known by three numbers: memory capacity, memory bandwidth and the dense peak of 16-bit floats.
    ///
    /// # Errors
    /// [`DeviceError`] for an empty name or a number that is not positive and finite.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::hardware::Device;
    /// use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
    ///
    /// let bandwidth = BytesPerSecond::from_gb_per_second(1000.0);
    /// let peak = FlopsPerSecond::from_tflops_per_second(100.0);
    /// let card = Device::from_specs("My card", Bytes::from_gb(48.0), bandwidth, peak)?;
    /// assert_eq!((Bytes::from_gb(35.0) / card.bandwidth()).to_string(), "35.0 ms"); // to read a 35 GB model once
    /// # Ok::<(), llm_roofline::hardware::DeviceError>(())
    /// ```
    pub fn from_specs(
        name: impl Into<String>,
        capacity: Bytes,
        bandwidth: BytesPerSecond,
        peak_16bit: FlopsPerSecond,
    ) -> Result<Self, DeviceError> {
        let name = name.into();
        let peak = Some(Sourced::assumed(peak_16bit));
        Self::new(DeviceProfile {
            schema_version: DeviceProfile::SCHEMA_VERSION,
            slug: slug_of(&name),
            name,
            vendor: "unknown".into(),
            generation: "custom".into(),
            family: "custom".into(),
            year: None,
            form_factor: None,
            aliases: Vec::new(),
            notes: Vec::new(),
            memory: Memory {
                capacity: Sourced::assumed(capacity),
                usable: None,
                usable_shares: Vec::new(),
                bandwidth: Sourced::assumed(bandwidth),
                kind: "unknown".into(),
                unified: false,
                l2: None,
            },
            compute: Compute { fp16: peak.clone(), bf16: peak, ..Compute::default() },
            links: Links::default(),
            power: Power::default(),
            prices: Vec::new(),
            sources: Sources::from([("caller".into(), "given by the caller".into())]),
        })
    }

    pub(super) const fn from_checked(profile: DeviceProfile) -> Self {
        Self { profile }
    }

    /// Every fact as in the profile file.
    pub const fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// The profile, to be changed and checked again by [`Device::new`].
    ///
    /// ```
    /// use llm_roofline::format::NumberFormat;
    /// use llm_roofline::hardware::Device;
    /// use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
    /// # let (capacity, bandwidth) = (Bytes::from_gb(80.0), BytesPerSecond::from_tb_per_second(3.0));
    /// # let device = Device::from_specs("Card", capacity, bandwidth, FlopsPerSecond::from_tflops_per_second(900.0))?;
    /// let ridge = device.ridge(NumberFormat::Bf16);
    /// let mut profile = device.into_profile();
    /// profile.memory.bandwidth.value = profile.memory.bandwidth.value * 2.0;
    /// assert_eq!(Device::new(profile)?.ridge(NumberFormat::Bf16), ridge / 2.0);
    /// # Ok::<(), llm_roofline::hardware::DeviceError>(())
    /// ```
    pub fn into_profile(self) -> DeviceProfile {
        self.profile
    }

    /// Short name, the key in the catalog.
    pub fn slug(&self) -> &str {
        &self.profile.slug
    }

    /// Name as sold.
    pub fn name(&self) -> &str {
        &self.profile.name
    }

    /// Architecture generation that efficiencies are keyed by (`hopper`, `cdna3`, `apple-m4`, `cpu`).
    pub fn generation(&self) -> &str {
        &self.profile.generation
    }

    /// What kernel efficiencies are looked up by, from special to general: generation with family (`ada-geforce`: clocks above the nominal ones, memory
    /// without error correction), generation with memory technology (`ampere-hbm`, `ampere-gddr`), generation, family, vendor in lower case.
    pub fn kernel_keys(&self) -> [String; 5] {
        let technology = ["hbm", "gddr", "lpddr", "ddr"];
        let kind = self.profile.memory.kind.to_lowercase();
        let technology = technology.into_iter().find(|technology| kind.starts_with(technology)).unwrap_or("memory");
        let generation = &self.profile.generation;
        let family = self.profile.family.clone();
        [
            format!("{generation}-{family}"),
            format!("{generation}-{technology}"),
            generation.clone(),
            family,
            self.profile.vendor.to_lowercase(),
        ]
    }

    /// Coarser family (`nvidia-datacenter`, `geforce`, `amd`, `apple`, `cpu`, `cpu-server` for more than two memory channels, and
    /// `cpu-mesh` for those of Intel).
    pub fn family(&self) -> &str {
        &self.profile.family
    }

    /// Memory capacity as sold.
    pub const fn capacity(&self) -> Bytes {
        self.profile.memory.capacity.value
    }

    /// Memory that the driver or the operating system leaves to programs; where that is unknown (CPUs, devices of three numbers), the
    /// capacity as sold.
    ///
    /// Cards hold binary gigabytes (an "80 GB" card 80 GiB), of which the driver and error correction take up to 9 %: 79.1 GiB of
    /// "80 GB" are visible, 44.4 GiB of an L40S with "48 GB". macOS gives the GPU two thirds to nine tenths of the memory, by how much
    /// there is ([`Device::with_memory_capacity`]).
    pub fn usable_memory(&self) -> Bytes {
        self.profile.memory.usable.as_ref().unwrap_or(&self.profile.memory.capacity).value
    }

    /// Peak memory bandwidth.
    pub const fn bandwidth(&self) -> BytesPerSecond {
        self.profile.memory.bandwidth.value
    }

    /// Whether the memory is the host's main memory too, so that there is no other memory to offload to.
    pub const fn has_unified_memory(&self) -> bool {
        self.profile.memory.unified
    }

    /// Dense peak of a number format with 32-bit accumulation, if the device has the format.
    pub fn peak(&self, format: NumberFormat) -> Option<FlopsPerSecond> {
        self.profile.compute.get(format).map(|peak| peak.value)
    }

    /// Dense peak of 16-bit floats with the faster accumulation: 16-bit where the device has it, 32-bit elsewhere.
    pub fn fp16_accumulate_peak(&self) -> Option<FlopsPerSecond> {
        let compute = &self.profile.compute;
        let peak = compute.fp16_fp16_accumulate.as_ref().or(compute.fp16.as_ref()).or(compute.bf16.as_ref());
        peak.or(compute.fp32.as_ref()).map(|peak| peak.value)
    }

    /// Arithmetic intensity at which reading memory takes as long as computing.
    ///
    /// # Formula
    /// `ridge = peak / bandwidth`, with the peak of the format in which a matrix product in `format` really runs
    /// ([`Device::matmul_peak`]).
    ///
    /// # References
    /// Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4),
    /// 2009, doi:10.1145/1498765.1498785.
    pub fn ridge(&self, format: NumberFormat) -> FlopsPerByte {
        self.matmul_peak(format, format).peak / self.bandwidth()
    }

    /// The fast link to neighbouring devices.
    pub const fn scale_up(&self) -> Option<&ScaleUp> {
        self.profile.links.scale_up.as_ref()
    }

    /// The link to the host.
    pub const fn host_link(&self) -> Option<&HostLink> {
        self.profile.links.host.as_ref()
    }

    /// Thermal design power.
    pub fn tdp(&self) -> Option<Watts> {
        self.profile.power.tdp.as_ref().map(|tdp| tdp.value)
    }

    /// Prices of rent that were read somewhere.
    pub fn prices(&self) -> &[Price] {
        &self.profile.prices
    }

    /// Every fact with its source; prices left out.
    pub fn facts(&self) -> Vec<Fact<'_>> {
        let DeviceProfile { memory, compute, links, power, .. } = &self.profile;
        let mut facts = vec![fact("memory.capacity", &memory.capacity)];
        facts.extend(memory.usable.as_ref().map(|usable| fact("memory.usable", usable)));
        facts.push(fact("memory.bandwidth", &memory.bandwidth));
        facts.extend(memory.l2.as_ref().map(|l2| fact("memory.l2", l2)));
        facts.extend(compute.entries().map(|(key, peak)| fact(&format!("compute.{key}"), peak)));
        facts.extend(links.scale_up.as_ref().map(|link| fact("links.scale_up.bandwidth", &link.bandwidth)));
        facts.extend(links.host.as_ref().map(|link| fact("links.host.bandwidth", &link.bandwidth)));
        facts.extend(links.scale_out.as_ref().map(|bandwidth| fact("links.scale_out", bandwidth)));
        facts.extend(power.tdp.as_ref().map(|tdp| fact("power.tdp", tdp)));
        facts
    }

    /// What is supposed rather than read about this device, one sentence per fact.
    ///
    /// ```
    /// use llm_roofline::hardware::Device;
    /// use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
    /// # let bandwidth = BytesPerSecond::from_gb_per_second(1000.0);
    /// # let peak = FlopsPerSecond::from_tflops_per_second(100.0);
    /// let card = Device::from_specs("My card", Bytes::from_gb(48.0), bandwidth, peak)?;
    /// assert_eq!(card.assumptions()[1], "My card: memory.bandwidth = 1.00 TB/s: given by the caller");
    /// # Ok::<(), llm_roofline::hardware::DeviceError>(())
    /// ```
    pub fn assumptions(&self) -> Vec<String> {
        self.assumptions_among(|_| true)
    }

    /// The same for the facts whose [`key`](Fact::key) is `used`.
    pub fn assumptions_among(&self, used: impl Fn(&str) -> bool) -> Vec<String> {
        let reference = |key| self.profile.sources.get(key).map_or("", String::as_str);
        self.facts()
            .iter()
            .filter(|fact| fact.kind == Provenance::Assumed && used(&fact.key))
            .map(|fact| format!("{}: {fact}: {}", self.profile.name, reference(fact.source)))
            .collect()
    }
}

fn fact<'a, Q: Display>(key: &str, sourced: &'a Sourced<Q>) -> Fact<'a> {
    Fact {
        key: key.into(),
        value: sourced.value.to_string(),
        kind: sourced.kind,
        source: &sourced.source,
        note: sourced.note.as_deref(),
    }
}

impl Compute {
    /// Every peak that there is, with its key.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static str, &Sourced<FlopsPerSecond>)> {
        let rest = [
            ("fp16_fp16_accumulate", self.fp16_fp16_accumulate.as_ref()),
            ("fp8_fp16_accumulate", self.fp8_fp16_accumulate.as_ref()),
        ];
        NumberFormat::ALL
            .into_iter()
            .map(|format| (format.name(), self.get(format)))
            .chain(rest)
            .filter_map(|(key, peak)| Some((key, peak?)))
    }
}

fn slug_of(name: &str) -> String {
    let hyphenated: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    hyphenated.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}
