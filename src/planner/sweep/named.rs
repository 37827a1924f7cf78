//! Axes from text, for command lines and configuration files.

use super::axis::{Axis, NAMES, position_of};
use crate::catalog::{Catalog, CatalogError};
use crate::planner::PlannerError;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

impl Axis {
    /// An axis by its name, with values as people write them. Labels are the canonical names.
    ///
    /// Names are `models`, `devices`, `engines`, `weights`, `kv`, `tensor_parallel`, `pipeline_parallel`, `expert_parallel`,
    /// `data_parallel_attention`, `speculation`, `prompts`, `outputs`, `counts`, `batches` and `rates`.
    ///
    /// # Errors
    /// [`PlannerError::Unknown`] for another name, [`PlannerError::Catalog`] for a profile that is not in the catalog,
    /// [`PlannerError::Unreadable`] for a text that is no value of the axis.
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// use llm_roofline::planner::Axis;
    /// let catalog = Catalog::embedded();
    /// assert_eq!(Axis::named(catalog, "devices", ["H100 SXM 80GB"])?.labels(), ["h100-sxm-80gb"]);
    /// assert_eq!(Axis::named(catalog, "rates", ["30 req/min"])?.labels(), ["0.5 req/s"]);
    /// let error = Axis::named(catalog, "weihgts", ["fp8"]).unwrap_err();
    /// assert!(error.to_string().starts_with("no axis is called `weihgts` (did you mean `weights`?)"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn named<'t>(
        catalog: &Catalog,
        name: &str,
        values: impl IntoIterator<Item = &'t str>,
    ) -> Result<Self, PlannerError> {
        let name = NAMES.get(position_of("axis", name, &NAMES)?).copied().unwrap_or_default();
        let values: Vec<&str> = values.into_iter().map(str::trim).collect();
        Ok(match name {
            "models" => Self::models(profiles(&values, |value| catalog.model(value))?),
            "devices" => Self::devices(profiles(&values, |value| catalog.device(value))?),
            "engines" => Self::engines(profiles(&values, |value| catalog.engine(value))?),
            "weights" => Self::weights(read(name, &values)?),
            "kv" => Self::kv(read(name, &values)?),
            "tensor_parallel" => Self::tensor_parallel(read(name, &values)?),
            "pipeline_parallel" => Self::pipeline_parallel(read(name, &values)?),
            "expert_parallel" => Self::expert_parallel(read(name, &values)?),
            "data_parallel_attention" => Self::data_parallel_attention(read(name, &values)?),
            "speculation" => Self::speculation(read::<super::SpeculationChoice>(name, &values)?),
            "prompts" => Self::prompts(read(name, &values)?),
            "outputs" => Self::outputs(read(name, &values)?),
            "counts" => Self::counts(read(name, &values)?),
            "batches" => Self::batches(read(name, &values)?),
            _ => Self::rates(read(name, &values)?),
        })
    }
}

fn profiles<P>(
    names: &[&str],
    find: impl Fn(&str) -> Result<Arc<P>, CatalogError>,
) -> Result<Vec<Arc<P>>, PlannerError> {
    Ok(names.iter().map(|name| find(name)).collect::<Result<_, _>>()?)
}

fn read<T: FromStr<Err: fmt::Display>>(axis: &'static str, values: &[&str]) -> Result<Vec<T>, PlannerError> {
    let value = |text: &&str| {
        text.parse().map_err(|reason: T::Err| PlannerError::Unreadable {
            what: axis,
            text: text.chars().take(100).collect(),
            reason: reason.to_string(),
        })
    };
    values.iter().map(value).collect()
}
