//! The constants of engine profiles, fitted to published measurements of whole steps.
//!
//! Which constants are free, and what is known of them beforehand, stands in a table of [`FreeParameter`]s; everything else in the profiles stays as
//! it is. The forward model is the library itself: a row is predicted as `validate` predicts it.

use super::solver::{Options, Prior, Problem, Solution, SolveError, solve, solve_from};
use crate::calibrate::score::SPEEDUP;
use crate::calibrate::{Measurement, Predictor, price};
use crate::catalog::{Catalog, CatalogError};
use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::step::StepModel;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A constant of an engine profile that is fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeParameter {
    /// Profile that holds it.
    pub profile: String,
    /// Its name there: `gemm.compute`, or `gemm.compute.by_generation.hopper` for a factor.
    pub parameter: String,
    /// Most probable value before the measurements, in the base unit (seconds for times).
    pub prior: f64,
    /// Standard deviation of its logarithm before the measurements.
    pub log_sd: f64,
}

/// Why a fit cannot start or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefitError {
    /// A profile that the catalog lacks or that has a mistake.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A parameter that its profile does not hold itself.
    #[error("profile {profile} holds no parameter `{parameter}` of its own")]
    Unknown {
        /// The profile.
        profile: String,
        /// The parameter.
        parameter: String,
    },
    /// A table of parameters that cannot be read.
    #[error("table of free parameters: {0}")]
    Table(#[from] csv::Error),
    /// A number that no prior can have.
    #[error("{profile}: `{parameter}` has prior {prior} with deviation {log_sd}, both must be positive")]
    Prior {
        /// The profile.
        profile: String,
        /// The parameter.
        parameter: String,
        /// The prior.
        prior: f64,
        /// Its deviation.
        log_sd: f64,
    },
    /// The equations have no solution.
    #[error(transparent)]
    Solve(#[from] SolveError),
}

/// Scatter of measurements around a law that is right: two hosts with the same card differ by so much.
const SIGMA: f64 = 0.08;
/// Rows with these tags say little about the kernels: the batch ran in waves, lengths are guesses, the host was the bottleneck.
const LEFT_OUT: [&str; 4] = ["over-memory", "lengths-missing", "egpu-slow-host", "wip"];

/// Weight of rows that the collection does not count as core: doubtful tags, old engines, configurations that are not fully stated.
const DOUBTFUL: f64 = 0.15;

/// Weight of times to first token under load: how the client starts, and what waits for what, scatters more than kernels do.
const QUEUEING: f64 = 0.15;

/// Reads a table `profile,parameter,prior,log_sd`; lines that start with `#` are remarks.
///
/// # Errors
/// [`RefitError`] for a malformed table, and for numbers that are not positive.
pub fn read_free_parameters(text: &str) -> Result<Vec<FreeParameter>, RefitError> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let rows = reader.deserialize::<(String, String, f64, f64)>();
    rows.map(|row| {
        let (profile, parameter, prior, log_sd) = row?;
        match prior > 0.0 && log_sd > 0.0 && prior.is_finite() && log_sd.is_finite() {
            true => Ok(FreeParameter { profile, parameter, prior, log_sd }),
            false => Err(RefitError::Prior { profile, parameter, prior, log_sd }),
        }
    })
    .collect()
}

/// Measurements and the parameters to fit to them.
#[derive(Debug)]
pub struct Refit<'a> {
    rows: Vec<Row<'a>>,
    weights: Vec<f64>,
    engines: Vec<FreeEngine>,
    free: Vec<FreeParameter>,
    priors: Vec<Prior>,
}

#[derive(Debug)]
struct Row<'a> {
    measurement: &'a Measurement,
    deployment: Deployment,
    engine: usize,
    /// Keys by which factors of its hardware and formats are found.
    generation: [String; 5],
    weights_key: &'static str,
}

/// An engine and those of the free parameters that it uses.
#[derive(Debug)]
struct FreeEngine {
    engine: Engine,
    parameters: Vec<usize>,
}

impl<'a> Refit<'a> {
    /// Takes the rows that the library can predict and that say something about kernels.
    ///
    /// # Errors
    /// [`RefitError`] if a free parameter does not exist.
    pub fn new(
        catalog: &Catalog,
        measurements: impl IntoIterator<Item = &'a Measurement>,
        free: Vec<FreeParameter>,
    ) -> Result<Self, RefitError> {
        let own = own_parameters(&free)?;
        let predictor = Predictor::new(catalog);
        let mut indices: HashMap<_, usize> = HashMap::new();
        let (mut rows, mut engines) = (Vec::new(), Vec::new());
        for measurement in measurements {
            let usable = !LEFT_OUT.iter().any(|tag| measurement.has_tag(tag))
                && measurement.metric != "oom"
                && !measurement.metric.contains("_p9");
            let Some((deployment, _)) = predictor.deployment(measurement).ok().filter(|_| usable) else { continue };
            let Ok(model) = StepModel::compile(&deployment) else { continue };
            if price(measurement, &model).is_err() {
                continue;
            }
            let engine = deployment.engine();
            let micro_batch = engine.scheduling.max_tokens_per_step.as_ref().map(|tokens| tokens.value);
            let wait = engine.scheduling.prompt_wait_steps.as_ref().map(|steps| steps.value.to_bits());
            let sequences = deployment.max_running_sequences();
            let index = *indices.entry((engine.slug.clone(), micro_batch, wait, sequences)).or_insert_with(|| {
                engines.push(FreeEngine { engine: engine.clone(), parameters: used_by(&engine.slug, &free, &own) });
                engines.len() - 1
            });
            let device = deployment.system().device();
            let (generation, weights_key) = (device.kernel_keys(), deployment.weights().kernel_key());
            rows.push(Row { measurement, engine: index, generation, weights_key, deployment });
        }
        let weights = group_weights(&rows);
        let bounds = |parameter: &FreeParameter| {
            let is_share = engines.iter().any(|free| is_share(&free.engine, &parameter.parameter));
            let prior =
                Prior::ln(format!("{} {}", parameter.profile, parameter.parameter), parameter.prior, parameter.log_sd);
            prior.within(f64::NEG_INFINITY, if is_share { 0.0 } else { f64::INFINITY })
        };
        let priors = free.iter().map(bounds).collect();
        Ok(Self { rows, weights, engines, priors, free })
    }

    /// Measurements that take part.
    pub fn rows(&self) -> impl Iterator<Item = &'a Measurement> {
        self.rows.iter().map(|row| row.measurement)
    }

    /// The free parameters.
    pub fn free(&self) -> &[FreeParameter] {
        &self.free
    }

    /// Fits.
    ///
    /// # Errors
    /// [`RefitError::Solve`].
    pub fn solve(&self) -> Result<Solution, RefitError> {
        Ok(solve(self, &Options { max_iterations: 40, tolerance: 1e-5, ..Options::default() })?)
    }

    /// Fits without the rows for which `left_out` holds, and returns the predictions for them, in the unit of their values.
    ///
    /// # Errors
    /// [`RefitError::Solve`].
    pub fn predict_left_out(
        &self,
        left_out: impl Fn(&Measurement) -> bool,
    ) -> Result<Vec<(&'a Measurement, f64)>, RefitError> {
        let out: Vec<bool> = self.rows.iter().map(|row| left_out(row.measurement)).collect();
        let part = Part { all: self, out: &out };
        let start = self.current();
        let solution =
            solve_from(&part, &start, &Options { max_iterations: 12, tolerance: 2e-4, ..Options::default() })?;
        let state = self.state(&solution.theta);
        let rows = self.rows.iter().zip(&out).enumerate().filter(|(_, (_, out))| **out);
        Ok(rows.map(|(index, (row, _))| (row.measurement, self.predicted(index, &state))).collect())
    }

    /// The values that the profiles hold now: near the end of any fit, so that a fold needs few steps.
    fn current(&self) -> Vec<f64> {
        let value = |(index, prior): (usize, &Prior)| {
            let user = self.engines.iter().find(|engine| engine.parameters.contains(&index));
            let number = user.and_then(|user| user.engine.parameter(&self.free[index].parameter));
            number.filter(|number| *number > 0.0).map_or(prior.mean, f64::ln)
        };
        self.priors.iter().enumerate().map(value).collect()
    }

    fn fitted(&self, free: &FreeEngine, theta: &[f64]) -> Arc<Engine> {
        let mut engine = free.engine.clone();
        for &index in &free.parameters {
            engine.set_parameter(&self.free[index].parameter, theta[index].exp());
        }
        Arc::new(engine)
    }

    /// The value of a row at the parameters of a state, or not a number where the model cannot be compiled.
    fn predicted(&self, index: usize, engines: &[Arc<Engine>]) -> f64 {
        let row = &self.rows[index];
        let deployment = row.deployment.clone().with_engine(Arc::clone(&engines[row.engine]));
        let model = StepModel::compile(&deployment);
        model.ok().and_then(|model| price(row.measurement, &model).ok()).unwrap_or(f64::NAN)
    }
}

impl Problem for Refit<'_> {
    type State = Vec<Arc<Engine>>;

    fn state(&self, theta: &[f64]) -> Self::State {
        self.engines.iter().map(|engine| self.fitted(engine, theta)).collect()
    }

    fn state_beside(&self, state: &Self::State, theta: &[f64], changed: usize) -> Self::State {
        let engines = self.engines.iter().zip(state);
        let updated = |(engine, old): (&FreeEngine, &Arc<Engine>)| match engine.parameters.contains(&changed) {
            true => self.fitted(engine, theta),
            false => Arc::clone(old),
        };
        engines.map(updated).collect()
    }

    fn priors(&self) -> &[Prior] {
        &self.priors
    }

    fn residual_count(&self) -> usize {
        self.rows.len()
    }

    fn residual(&self, index: usize, state: &Self::State) -> f64 {
        (self.predicted(index, state) / self.rows[index].measurement.value).ln() / SIGMA
    }

    fn weight(&self, index: usize) -> f64 {
        self.weights[index]
    }

    fn depends(&self, index: usize, parameter: usize) -> bool {
        let row = &self.rows[index];
        let engine = &self.engines[row.engine];
        engine.parameters.contains(&parameter) && row.uses(&engine.engine, &self.free[parameter].parameter)
    }
}

/// The same problem with some rows left out: they weigh nothing.
struct Part<'r, 'a> {
    all: &'r Refit<'a>,
    out: &'r [bool],
}

impl Problem for Part<'_, '_> {
    type State = Vec<Arc<Engine>>;

    fn state(&self, theta: &[f64]) -> Self::State {
        self.all.state(theta)
    }

    fn state_beside(&self, state: &Self::State, theta: &[f64], changed: usize) -> Self::State {
        self.all.state_beside(state, theta, changed)
    }

    fn priors(&self) -> &[Prior] {
        self.all.priors()
    }

    fn residual_count(&self) -> usize {
        self.all.residual_count()
    }

    fn residual(&self, index: usize, state: &Self::State) -> f64 {
        if self.out[index] { 0.0 } else { self.all.residual(index, state) }
    }

    fn weight(&self, index: usize) -> f64 {
        if self.out[index] { 0.0 } else { self.all.weight(index) }
    }

    fn depends(&self, index: usize, parameter: usize) -> bool {
        !self.out[index] && self.all.depends(index, parameter)
    }
}

impl Row<'_> {
    /// Whether a parameter that the engine has can matter for this row.
    fn uses(&self, engine: &Engine, parameter: &str) -> bool {
        let mut path = parameter.splitn(4, '.');
        let (law, name, table, key) = (path.next(), path.next(), path.next(), path.next());
        // Quotients of rates say what a cycle costs in steps, not what steps cost.
        if (law == Some("speculation")) != (self.measurement.metric == SPEEDUP) {
            return false;
        }
        let (Some(law), Some(name), Some(table), Some(key)) = (law, name, table, key) else { return true };
        if table == "by_format" {
            let of_weights = matches!(law, "gemm" | "experts");
            // Some matrices of a model are kept in other formats than the rest, or expanded by other kernels.
            return !of_weights || key == self.weights_key || ["f16", "q6_k", "int4", "gptq-int8"].contains(&key);
        }
        let full = format!("{law}.{name}");
        let parameters = engine.parameters();
        let found = parameters.iter().find(|(candidate, _)| *candidate == full);
        let Some((_, parameter)) = found else { return false };
        let [(_, factors), _] = parameter.factors();
        self.generation
            .iter()
            .find(|generation| factors.contains_key(generation.as_str()))
            .is_some_and(|first| first == key)
    }
}

/// The names of all parameters that each profile holds itself, for the profiles of the free parameters and whatever they extend.
fn own_parameters(free: &[FreeParameter]) -> Result<BTreeMap<String, Vec<String>>, RefitError> {
    let mut own: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for parameter in free {
        let lineage = Catalog::engine_lineage(&parameter.profile);
        let names = own.entry(parameter.profile.clone()).or_insert_with(|| {
            let text = lineage.first().map_or("", |(_, text)| text);
            text.parse::<toml::Table>().map_or_else(|_| Vec::new(), |table| names_in(&table))
        });
        if !names.contains(&parameter.parameter) {
            let FreeParameter { profile, parameter, .. } = parameter.clone();
            return Err(RefitError::Unknown { profile, parameter });
        }
    }
    Ok(own)
}

/// `law.parameter` for every value and `law.parameter.table.key` for every factor in a profile.
fn names_in(profile: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (law, parameters) in profile {
        let Some(parameters) = parameters.as_table() else { continue };
        for (name, parameter) in parameters {
            let Some(parameter) = parameter.as_table() else { continue };
            if parameter.contains_key("value") {
                names.push(format!("{law}.{name}"));
            }
            for table in ["by_generation", "by_format"] {
                let factors = parameter.get(table).and_then(toml::Value::as_table);
                names.extend(
                    factors
                        .into_iter()
                        .flat_map(|factors| factors.keys())
                        .map(|key| format!("{law}.{name}.{table}.{key}")),
                );
            }
        }
    }
    names
}

/// The free parameters that an engine takes from its profile or from one below, unless a nearer profile replaces them.
fn used_by(slug: &str, free: &[FreeParameter], own: &BTreeMap<String, Vec<String>>) -> Vec<usize> {
    let lineage: Vec<&str> = Catalog::engine_lineage(slug).into_iter().map(|(slug, _)| slug).collect();
    let all_own: Vec<Vec<String>> = Catalog::engine_lineage(slug)
        .into_iter()
        .map(|(slug, text)| {
            own.get(slug).cloned().unwrap_or_else(|| text.parse().map_or_else(|_| Vec::new(), |table| names_in(&table)))
        })
        .collect();
    let is_used = |parameter: &FreeParameter| {
        let holder = all_own.iter().position(|names| names.contains(&parameter.parameter));
        holder.is_some_and(|holder| lineage[holder] == parameter.profile)
    };
    free.iter().enumerate().filter(|(_, parameter)| is_used(parameter)).map(|(index, _)| index).collect()
}

/// Whether the parameter is a share of a peak, which is at most 1.
fn is_share(engine: &Engine, name: &str) -> bool {
    engine
        .parameters()
        .iter()
        .any(|(candidate, parameter)| candidate == name && parameter.expected().starts_with("a share"))
}

/// Every configuration counts once in each metric, however many rows it has; with speculation, every shape of proposals.
fn group_weights(rows: &[Row<'_>]) -> Vec<f64> {
    let group = |row: &Row<'_>| {
        let m = row.measurement;
        (
            m.engine.clone(),
            m.device.clone(),
            m.device_count,
            m.tp,
            m.model.clone(),
            m.weight_format.clone(),
            m.metric.clone(),
            ["method", "steps", "topk"].map(|tag| m.tag(tag).map(String::from)),
        )
    };
    let mut sizes: HashMap<_, f64> = HashMap::new();
    for row in rows {
        *sizes.entry(group(row)).or_insert(0.0) += 1.0;
    }
    let trust = |row: &Row<'_>| {
        let m = row.measurement;
        let queues = m.mode.ends_with("_loop") && m.metric == "ttft_ms";
        (if m.core == Some(false) { DOUBTFUL } else { 1.0 }) * if queues { QUEUEING } else { 1.0 }
    };
    rows.iter().map(|row| trust(row) / sizes[&group(row)]).collect()
}
