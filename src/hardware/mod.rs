//! Hardware: devices as sold, and systems built of them.
//!
//! A [`Device`] is one accelerator or CPU with the four numbers that a roofline needs (memory capacity, memory bandwidth, arithmetic
//! peak per number format, link bandwidth), each with its source. A [`System`] is a number of equal devices and what connects them.
//!
//! Four conventions keep the figures comparable, because data sheets do not share them:
//! - peaks are dense: sheets of NVIDIA since 2020 print twice as much, with structured sparsity;
//! - `fp16` and `fp8` mean accumulation in 32 bits, as language models need it: GeForce cards run at half their printed rate then;
//! - link bandwidths are per direction: sheets print the sum of both;
//! - prefixes are decimal, as sheets print them (`80 GB`); what the driver leaves to programs is [`Device::usable_memory`].
//!
//! ```
//! use llm_roofline::format::NumberFormat;
//! use llm_roofline::hardware::Device;
//! use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
//!
//! // NVIDIA A100 40 GB, from its data sheet: below 201 operations per byte it waits for its memory.
//! let a100 = Device::from_specs(
//!     "A100 SXM 40GB",
//!     Bytes::from_gb(40.0),
//!     BytesPerSecond::from_gb_per_second(1555.0),
//!     FlopsPerSecond::from_tflops_per_second(312.0),
//! )?;
//! assert_eq!(a100.ridge(NumberFormat::Bf16).as_flops_per_byte().round(), 201.0);
//! # Ok::<(), llm_roofline::hardware::DeviceError>(())
//! ```

mod capacity;
mod check;
mod device;
mod link;
mod matmul;
mod profile;
mod system;

pub use check::DeviceError;
pub use device::{Device, Fact};
pub use link::{GroupLinks, Link, LinkKind, Topology};
pub use matmul::MatmulPeak;
pub use profile::{Compute, DeviceProfile, HostLink, Links, Memory, Power, Price, ScaleUp, UsableShare};
pub use system::{System, SystemError};
