//! Predictions against published measurements: reading them, predicting each row, scoring.
//!
//! A file of [`Measurement`]s is read with [`read_measurements`]; a [`Predictor`] turns a row into a deployment and a few steps, and
//! predicts its metric; a [`ScoreTable`] tells how far off the predictions are. `examples/validate.rs` does all of it.
//!
//! Tags of a row set what its columns do not hold, under the names of the engines' options (`_` is taken for `-`):
//!
//! | tag | sets |
//! | --- | --- |
//! | `gpu-memory-utilization` (`util`), `mem-fraction-static`, `free-gpu-memory-fraction`, `cache-max-entry-count` | share of memory |
//! | `max-num-batched-tokens`, `chunked-prefill-size`, `max-num-tokens`, `ub` | tokens of a step |
//! | `max-num-seqs`, `max-running-requests`, `max-batch-size` | sequences at once |
//! | `block-size`, `page-size`, `tokens-per-block` | tokens of a block of the cache |
//! | `max-model-len`, `context-length`, `max-seq-len`, `ctx-size` | the longest context, for `oom` and `kv_cache_tokens` |
//! | `device-memory-gb` | memory of a device that is sold with several sizes |
//! | `visible-gib` | memory of the device that programs see |
//! | `kv-cache-gib` (`kv-gib`) | memory that the engine found for its cache: the size of the pool follows exactly |
//! | `weights-gib`, `activation-gib`, `non-torch-gib` | parts that a log prints, in place of those that are predicted |
//! | `threads` | cores of a processor that were at work, such as `2/16` |
//! | `backend` | the backend of the engine |
//! | `method` | how tokens are drafted, for `speedup` by speculative decoding: `eagle3`, `mtp`, `ngram`, ... |
//! | `acceptance_length`, or `acceptance_rate` | tokens per step with the target's own, or accepted over proposed as engines print it |
//! | `steps`, `topk`, `num_draft_tokens` | the shape of the proposals, counted as SGLang does: the root is one of `num_draft_tokens` |
//! | `draft`, `draft_format` | the draft model, by its name in the catalog, and the format of its weights |
//! | `dataset` | what was asked, from which lengths are assumed where none are stated |
//!
//! ```
//! use llm_roofline::calibrate::{Predictor, read_measurements};
//! use llm_roofline::catalog::Catalog;
//!
//! let file = "\
//! id,source,engine,device,device_count,tp,model,weight_format,mode,concurrency,context_tokens,output_tokens,metric,value
//! a,house,ideal,h100-sxm-80gb,1,1,llama-3.1-8b,bf16,single_stream,1,4000,500,decode_tps_per_stream,140
//! ";
//! let rows = read_measurements(file.as_bytes(), "house.csv")?;
//! let mut predictor = Predictor::new(Catalog::embedded());
//! let prediction = predictor.predict(&rows[0])?;
//! assert_eq!(format!("{:.0}", prediction.predicted), "215"); // tok/s, as `value`
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod deployed;
#[cfg(feature = "fit")]
pub mod fit;
mod launches;
mod load;
mod measurement;
mod predict;
mod report;
mod score;
mod settings;
mod speculation;

pub use measurement::{Measurement, MeasurementError, Tag, read_measurements};
pub use predict::{Prediction, Predictor, Refusal, price};
pub use report::{Phase, accuracy_report, format_family};
pub use score::{BenefitSign, ErrorStatistics, OomRecall, Score, ScoreTable, Scored};
