//! Predicts how fast a language model will serve, without any hardware.
//!
//! # Why a model starts at once and then writes slowly
//!
//! A request has two phases. In the *prefill* the whole prompt passes through the model in one step; it ends with the first
//! token, after the time to first token (TTFT). In the *decode* every further token takes a step of its own, one inter-token
//! latency (ITL) each. Both read the same weights, but the prefill multiplies each weight with every token of the prompt, and a
//! decode step with one token only.
//!
//! ```
//! use llm_roofline::prelude::*;
//!
//! let catalog = Catalog::embedded();
//! let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
//! let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system);
//! let model = StepModel::compile(&deployment)?;
//!
//! let answer = model.request(&Request::new(4000, 500))?;
//! assert_eq!(answer.ttft.to_string(), "61.0 ms"); // 4,000 tokens in 61 ms ...
//! assert_eq!(answer.tpot.unwrap().to_string(), "4.65 ms"); // ... and one token in 4.65 ms
//! assert_eq!((answer.prefill_bound(), answer.decode_bound()), (Bound::Compute, Bound::Memory));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The digits can be checked by hand. The model has 8.03 billion parameters, 7.5 billion of them multiplied with every token: about
//! 15 GFLOP per token, 60 TFLOP for the prompt, 61 ms at 989 TFLOP/s. A decode step reads 15 GB of weights and half a gigabyte of
//! cached keys and values: 4.65 ms at 3.35 TB/s. The ratio of the two limits, 295 operations per byte, is the device's *ridge*:
//! work with fewer operations per byte is bound by memory, work with more by arithmetic ([`roofline`]).
//!
//! Everything else follows from that picture. Quantized weights are fewer bytes, so decode gets faster, while a prefill that computes
//! in 16 bits stays the same. A batch shares the reading of the weights. A faster arithmetic unit does nothing for decode, more
//! bandwidth nothing for a long prefill. `examples/two_phases.rs` draws it.
//!
//! # What a real engine makes of it
//!
//! The numbers above are the hardware's limit, under the *ideal* engine. Real engines stay below it: every kernel takes microseconds to
//! start, reads at a share of the bandwidth and multiplies at a share of the peak, devices wait for one another, the host prepares each
//! step. An engine profile holds these numbers as laws, each with its source, fitted to published measurements. The same request under both:
//!
//! ```
//! use llm_roofline::prelude::*;
//!
//! let catalog = Catalog::embedded();
//! let answer = |engine: &str| -> Result<RequestEstimate, Box<dyn std::error::Error>> {
//!     let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
//!     let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine(engine)?);
//!     Ok(StepModel::compile(&deployment)?.request(&Request::new(4000, 500))?)
//! };
//! let (ideal, vllm) = (answer("ideal")?, answer("vllm")?);
//!
//! let tpot = vllm.tpot_interval.unwrap(); // prints as 7.06 ms (5.38 ms to 9.26 ms)
//! assert_eq!(format!("{:.0}", tpot.expected.as_millis()), "7");
//! assert!(tpot.low > ideal.tpot.unwrap() && tpot.high < tpot.expected * 1.5); // nine of ten measurements are expected in between
//! // The limit is 4.65 ms, so decode takes about half more; the prompt takes almost twice its 61 ms.
//! assert!((1.3..1.8).contains(&(vllm.tpot.unwrap() / ideal.tpot.unwrap())));
//! assert!((1.5..2.3).contains(&(vllm.ttft / ideal.ttft)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`step::StepModel::explain`] names the law that costs most in each operator, and [`step::StepModel::why_slow`] judges a rate that you measured.
//!
//! # How the library is built
//!
//! - [`catalog`]: embedded profiles of devices, models and engines; [`import`] reads Hugging Face configurations and GGUF files.
//! - [`deployment::Deployment`]: a model in some formats on a [`hardware::System`] under an [`engine::Engine`], laid out with tensor, pipeline,
//!   expert and data parallelism.
//! - [`engine`]: the laws of kernels and of the host, as data; [`collective`]: all-reduces and exchanges between devices.
//! - [`step::StepModel`]: the deployment compiled to coefficients; it prices any step in nanoseconds, and explains it.
//! - `calibrate` (a cargo feature, on by default): published measurements, predicted and scored; with the feature `fit` also the fit of
//!   engine profiles to them.
//! - [`request`]: unloaded requests; [`memory`]: what fits; [`text`] and [`delivery`]: what the reader notices.
//! - [`speculative`]: a drafter beside the target; when it pays, by how much, with how many draft tokens.
//! - [`serving`]: many requests at once, as a steady state in closed form; [`serving::simulate`] (feature `random`, on by default) serves
//!   every request of a workload or a trace instead.
//!
//! - [`planner`]: the inverse questions. Which devices, how many, laid out how, at what cost; what if a number of the data sheet were another.
//!
//! Where each number comes from is part of the answer: profiles name their sources, and every estimate lists its assumptions.
//! `docs/theory.md` has every formula with its source, `docs/architecture.md` the map of the code.
//!
//! # Three levels of detail, one vocabulary
//!
//! 1. *Totals*: parameters, bits, GB/s. [`model::Totals`] with [`hardware::Device::from_specs`].
//! 2. *Architecture*: every operator of every layer, from the catalog or an imported file. The example above.
//! 3. *Load*: many requests at once, as [`step::StepLoad`]s: prompt chunks and decode tokens mixed in one step. [`serving::Server`] has their
//!    steady state, [`serving::simulate::Simulation`] what becomes of each of them.

#![forbid(unsafe_code)]

#[cfg(feature = "calibrate")]
pub mod calibrate;
pub mod catalog;
pub mod collective;
pub mod delivery;
pub mod deployment;
pub mod engine;
pub mod format;
pub mod hardware;
pub mod import;
pub mod memory;
pub mod model;
pub mod numeric;
pub mod operator;
mod parallel;
pub mod planner;
pub mod prelude;
pub mod profile;
pub mod queueing;
pub mod request;
pub mod roofline;
pub mod serving;
pub mod speculative;
pub mod step;
pub mod text;
pub mod units;
pub mod workload;
