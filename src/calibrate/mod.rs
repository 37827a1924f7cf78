//! Predictions against published measurements: reading them, predicting each row, scoring.
//!
//! A file of [`Measurement`]s is read with [`read_measurements`]; a [`Predictor`] turns a row into a deployment and a few steps, and
//! predicts its metric; a [`ScoreTable`] tells how far off the predictions are. `examples/validate.rs` does all of it.
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

#[cfg(feature = "fit")]
pub mod fit;
mod measurement;
mod predict;
mod report;
mod score;

pub use measurement::{Measurement, MeasurementError, Tag, read_measurements};
pub use predict::{Prediction, Predictor, Refusal, price};
pub use report::{Phase, accuracy_report, format_family};
pub use score::{ErrorStatistics, OomRecall, Score, ScoreTable, Scored};
