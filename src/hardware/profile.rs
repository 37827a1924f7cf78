//! Device profiles as TOML: the shape of the file.

use super::{Device, LinkKind, Topology};
use crate::format::NumberFormat;
use crate::profile::{self, ProfileError, Provenance, Sourced, Sources};
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, UsdPerHour, Watts};
use serde::{Deserialize, Serialize};

/// The content of a device profile, as written in its file. [`Device::new`] checks it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// Version of this shape: [`DeviceProfile::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Short name, the key in the catalog: lower case, digits and hyphens.
    pub slug: String,
    /// Name as sold.
    pub name: String,
    /// Maker.
    pub vendor: String,
    /// Architecture generation that efficiencies are keyed by (`hopper`, `cdna3`, `apple-m4`, `cpu`).
    pub generation: String,
    /// Coarser family (`nvidia-datacenter`, `geforce`, `amd`, `apple`, `cpu`, `cpu-server` for more than two memory channels, and
    /// `cpu-mesh` for those of Intel).
    pub family: String,
    /// Year of introduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// Card, module or chip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form_factor: Option<String>,
    /// Other spellings that mean this device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Disagreements between sources, and what was assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Memory.
    pub memory: Memory,
    /// Arithmetic peaks.
    pub compute: Compute,
    /// Links.
    #[serde(default, skip_serializing_if = "Links::is_empty")]
    pub links: Links,
    /// Electrical power.
    #[serde(default, skip_serializing_if = "Power::is_empty")]
    pub power: Power,
    /// Prices of rent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
    /// Full references of the sources that the facts name.
    pub sources: Sources,
}

/// Memory of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Memory {
    /// Capacity as sold. Sheets write decimal prefixes even where the chips hold binary ones.
    pub capacity: Sourced<Bytes>,
    /// What the driver leaves to programs, where it was measured or is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<Sourced<Bytes>>,
    /// Which share of the memory programs get by how much was bought, where that is a rule (macOS); from small to large.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usable_shares: Vec<UsableShare>,
    /// Peak bandwidth, reads and writes together.
    pub bandwidth: Sourced<BytesPerSecond>,
    /// Memory technology (`HBM3`, `GDDR6X`, `LPDDR5X`).
    pub kind: String,
    /// Whether it is the host's main memory too: CPUs, and chips whose CPU and GPU share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unified: bool,
    /// Last on-chip level: L2, last-level or Infinity Cache, or software-managed SRAM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<Sourced<Bytes>>,
}

/// The share of the memory that programs get on devices with at least so much of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct UsableShare {
    /// Smallest memory that has this share.
    pub from: Bytes,
    /// Usable part of the installed memory, more than 0 and at most 1.
    pub share: f64,
}

/// Dense arithmetic peaks per number format. An absent format is one that the device lacks, or that nobody publishes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Compute {
    /// 32-bit float, vector units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp32: Option<Sourced<FlopsPerSecond>>,
    /// TensorFloat-32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tf32: Option<Sourced<FlopsPerSecond>>,
    /// 16-bit float with 32-bit accumulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp16: Option<Sourced<FlopsPerSecond>>,
    /// 16-bit float with 16-bit accumulation, where that is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp16_fp16_accumulate: Option<Sourced<FlopsPerSecond>>,
    /// bfloat16 with 32-bit accumulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16: Option<Sourced<FlopsPerSecond>>,
    /// 8-bit float with 32-bit accumulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Sourced<FlopsPerSecond>>,
    /// 8-bit float with 16-bit accumulation, where that is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_fp16_accumulate: Option<Sourced<FlopsPerSecond>>,
    /// 8-bit integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int8: Option<Sourced<FlopsPerSecond>>,
    /// 6-bit float.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp6: Option<Sourced<FlopsPerSecond>>,
    /// 4-bit float.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp4: Option<Sourced<FlopsPerSecond>>,
    /// 4-bit integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int4: Option<Sourced<FlopsPerSecond>>,
}

impl Compute {
    /// The peak of a format, if the device has it.
    pub const fn get(&self, format: NumberFormat) -> Option<&Sourced<FlopsPerSecond>> {
        match format {
            NumberFormat::Fp32 => self.fp32.as_ref(),
            NumberFormat::Tf32 => self.tf32.as_ref(),
            NumberFormat::Fp16 => self.fp16.as_ref(),
            NumberFormat::Bf16 => self.bf16.as_ref(),
            NumberFormat::Fp8 => self.fp8.as_ref(),
            NumberFormat::Int8 => self.int8.as_ref(),
            NumberFormat::Fp6 => self.fp6.as_ref(),
            NumberFormat::Fp4 => self.fp4.as_ref(),
            NumberFormat::Int4 => self.int4.as_ref(),
        }
    }

    /// The peaks of a format to be changed: with the usual accumulation, and with the faster one where there is one.
    pub const fn get_mut(&mut self, format: NumberFormat) -> [Option<&mut Sourced<FlopsPerSecond>>; 2] {
        match format {
            NumberFormat::Fp32 => [self.fp32.as_mut(), None],
            NumberFormat::Tf32 => [self.tf32.as_mut(), None],
            NumberFormat::Fp16 => [self.fp16.as_mut(), self.fp16_fp16_accumulate.as_mut()],
            NumberFormat::Bf16 => [self.bf16.as_mut(), None],
            NumberFormat::Fp8 => [self.fp8.as_mut(), self.fp8_fp16_accumulate.as_mut()],
            NumberFormat::Int8 => [self.int8.as_mut(), None],
            NumberFormat::Fp6 => [self.fp6.as_mut(), None],
            NumberFormat::Fp4 => [self.fp4.as_mut(), None],
            NumberFormat::Int4 => [self.int4.as_mut(), None],
        }
    }
}

/// Links of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Links {
    /// To devices of the same scale-up domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<ScaleUp>,
    /// To the host's memory, and over it to other cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostLink>,
    /// To other nodes per device and direction, where the device has its own network port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_out: Option<Sourced<BytesPerSecond>>,
}

impl Links {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The fast link between neighbouring devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScaleUp {
    /// All links of one device together, per direction.
    pub bandwidth: Sourced<BytesPerSecond>,
    /// Devices that reach one another over it.
    pub domain: u32,
    /// The technology.
    pub kind: LinkKind,
    /// The wiring.
    #[serde(default)]
    pub topology: Topology,
}

/// The link to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HostLink {
    /// Payload per direction, line coding taken off.
    pub bandwidth: Sourced<BytesPerSecond>,
    /// The technology (`PCIe 5.0 x16`).
    pub kind: String,
}

/// Electrical power of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Power {
    /// Thermal design power, or the highest configurable one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdp: Option<Sourced<Watts>>,
}

impl Power {
    fn is_empty(&self) -> bool {
        self.tdp.is_none()
    }
}

/// What somebody asked for an hour of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Price {
    /// The price.
    pub usd_per_hour: UsdPerHour,
    /// Who asked it, and on which terms.
    pub provider: String,
    /// Day, month or year of the price.
    pub date: String,
    /// How it was obtained.
    pub kind: Provenance,
    /// Key into the sources of the file.
    pub source: String,
}

impl DeviceProfile {
    /// The version of the profile's shape that this crate reads and writes.
    pub const SCHEMA_VERSION: u32 = 1;
}

impl Device {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line, key and the nearest valid name.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::hardware::Device;
    ///
    /// let text = r#"
    ///     schema_version = 1
    ///     slug = "toy"
    ///     name = "Toy"
    ///     vendor = "Somebody"
    ///     generation = "toy"
    ///     family = "toy"
    ///     [memory]
    ///     capacity = { value = "24 GB", kind = "assumed", source = "me" }
    ///     bandwith = { value = "1 TB/s", kind = "assumed", source = "me" }
    /// "#;
    /// let error = Device::from_toml(text, "toy.toml").unwrap_err().to_string();
    /// assert!(error.starts_with("toy.toml, line 10: unknown field `bandwith`"));
    /// assert!(error.ends_with("(did you mean `bandwidth`?)"));
    /// ```
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let profile: DeviceProfile = profile::read(text, file)?;
        Self::new(profile).map_err(|error| ProfileError::at_key(file, error.key(), &error).locate(text))
    }

    /// Writes the profile; reading it again gives an equal device.
    pub fn to_toml(&self) -> String {
        // Every field is a string, a number or a table of them, so that there is nothing TOML could refuse.
        toml::to_string(self.profile()).unwrap_or_default()
    }
}
