//! Laws of single kernels, fitted to public measurements, for the defaults of engine profiles.
//!
//! Every law is fitted at each level of detail: per device and framework, per device, per generation of devices, over all; the
//! wider ones serve devices and engines without measurements of their own. Residuals are logarithms in units of 10 %, so that a
//! kernel of 10 us counts as much as one of 10 ms.

mod laws;
mod tables;

pub use laws::{
    AllReduce, DecodeAttention, DecodeAttentionItems, Experts, Gemm, Law, LibraryAllReduce, PrefillAttention,
    PrefillAttentionWalk,
};

use super::solver::{Options, Prior, Problem, Solution, SolveError, solve};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Relative error of a kernel law that counts as one standard deviation.
const SIGMA: f64 = 0.1;

/// Fewest rows that are fitted by themselves.
const FEWEST_ROWS: usize = 20;

/// Tokens from which the time of decode attention is linear in its bytes.
const USUAL_CONTEXT: f64 = 512.0;

/// Name for "every device", "every framework".
const ALL: &str = "all";

/// One measured kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured<L> {
    /// Device, as in the table.
    pub device: String,
    /// Framework or library whose kernel it is.
    pub framework: String,
    /// Number format.
    pub format: String,
    /// What the law knows of it.
    pub law: L,
    /// Measured time in us.
    pub measured_us: f64,
}

/// A fitted constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Name, as in the law.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Standard deviation of its logarithm: of the fit alone, not of the spread between devices.
    pub log_sd: f64,
}

/// One law fitted to one group of rows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fitted {
    /// Operator.
    pub operator: &'static str,
    /// Device, generation of devices, or `all`.
    pub scope: String,
    /// Number format, `any` where it makes no difference.
    pub format: String,
    /// Framework, or `all`.
    pub framework: String,
    /// Constants of the law.
    pub constants: Vec<Constant>,
    /// Rows fitted.
    pub rows: usize,
    /// Median of the absolute relative errors.
    pub median_error: f64,
    /// 95th percentile of the absolute relative errors.
    pub p95_error: f64,
}

impl Fitted {
    /// Header of [`Fitted::csv`].
    pub const CSV_HEADER: &str = "operator,generation,format,framework,parameter,value,log_sd,rows,median_ape,p95_ape";

    /// One line per constant; errors in percent.
    pub fn csv(&self) -> String {
        let line = |constant: &Constant| {
            let Self { operator, scope, format, framework, rows, .. } = self;
            let Constant { name, value, log_sd } = constant;
            let (median, p95) = (self.median_error * 100.0, self.p95_error * 100.0);
            let group = format!("{operator},{scope},{format},{framework}");
            format!("{group},{name},{value:.5},{log_sd:.4},{rows},{median:.2},{p95:.2}\n")
        };
        self.constants.iter().map(line).collect()
    }
}

impl fmt::Display for Fitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22} {:19} {:9} {:7}", self.operator, self.scope, self.format, self.framework)?;
        write!(f, " {:5} rows {:5.1} % / {:5.1} % ", self.rows, self.median_error * 100.0, self.p95_error * 100.0)?;
        self.constants.iter().try_for_each(|c| write!(f, " {} {:.4}", c.name, c.value))
    }
}

/// Why kernels cannot be fitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A table that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// A cell that is missing or means nothing.
    #[error("{table}, row {row}, column {column}: found {found}")]
    Cell {
        /// Table.
        table: String,
        /// Row, counted from 1 below the header.
        row: usize,
        /// Column.
        column: String,
        /// What stands there.
        found: String,
    },
    /// A fit that failed.
    #[error("{operator}, {scope}: {source}")]
    Solve {
        /// Operator.
        operator: &'static str,
        /// Device, generation or `all`.
        scope: String,
        /// Reason.
        source: SolveError,
    },
}

/// The generation of a device in the tables: devices whose kernels are compiled from the same code.
pub fn generation(device: &str) -> &'static str {
    match device {
        "a100_sxm" => "ampere",
        "h100_sxm" | "h200_sxm" => "hopper",
        "b200_sxm" | "gb200" => "blackwell",
        "b300_sxm" | "gb300" => "blackwell-ultra",
        "l40s" => "ada",
        "rtx_pro_6000_server" => "blackwell-gddr",
        "b60" => "battlemage",
        _ => "other",
    }
}

/// Fits every law to the tables in a folder.
///
/// # Errors
/// A table that is missing or malformed, or a fit without a solution: see [`KernelError`].
pub fn fit_folder(folder: &Path) -> Result<Vec<Fitted>, KernelError> {
    let devices = tables::Devices::read(folder)?;
    let decode = devices.decode(folder, USUAL_CONTEXT)?;
    let decode_any = wrapped(devices.decode(folder, 0.0)?, DecodeAttentionItems);
    let prefill = devices.prefill(folder)?;
    let bus = wrapped(devices.all_reduce(folder, tables::Reducer::EngineOverBus)?, LibraryAllReduce);
    let library = wrapped(devices.all_reduce(folder, tables::Reducer::Library)?, LibraryAllReduce);
    let mut all = fit_groups("gemm", &devices.gemm(folder)?)?;
    all.extend(fit_groups("decode_attention", &decode)?);
    all.extend(fit_groups("decode_attention_items", &decode_any)?);
    all.extend(fit_groups("prefill_attention", &prefill)?);
    all.extend(fit_groups("prefill_attention_walk", &wrapped(prefill, PrefillAttentionWalk))?);
    all.extend(fit_groups("moe", &devices.experts(folder)?)?);
    all.extend(fit_groups("all_reduce", &devices.all_reduce(folder, tables::Reducer::EngineOverLinks)?)?);
    all.extend(fit_groups("all_reduce_bus", &bus)?);
    all.extend(fit_groups("all_reduce_nccl", &library)?);
    Ok(all)
}

/// The same rows under another law.
fn wrapped<L, M>(rows: Vec<Measured<L>>, law: impl Fn(L) -> M) -> Vec<Measured<M>> {
    let wrap = |Measured { device, framework, format, law: inner, measured_us }| {
        let law = law(inner);
        Measured { device, framework, format, law, measured_us }
    };
    rows.into_iter().map(wrap).collect()
}

/// Fits one law to every group of rows: device, generation and all, each with one framework and with all of them.
///
/// # Errors
/// A fit without a solution.
pub fn fit_groups<const N: usize, L: Law<N>>(
    operator: &'static str,
    rows: &[Measured<L>],
) -> Result<Vec<Fitted>, KernelError> {
    let mut groups: BTreeMap<(u8, &str, &str, &str), Vec<&Measured<L>>> = BTreeMap::new();
    for row in rows {
        for (level, scope) in [(0, ALL), (1, generation(&row.device)), (2, row.device.as_str())] {
            for framework in [ALL, row.framework.as_str()] {
                groups.entry((level, scope, &row.format, framework)).or_default().push(row);
            }
        }
    }
    let large = groups.into_iter().filter(|(_, rows)| rows.len() >= FEWEST_ROWS);
    large
        .map(|((_, scope, format, framework), rows)| {
            let wrap = |source| KernelError::Solve { operator, scope: scope.to_string(), source };
            let (solution, priors) = fit_rows(&rows, L::priors()).map_err(wrap)?;
            let mut errors: Vec<f64> = solution.residuals.iter().map(|r| ((r * SIGMA).exp() - 1.0).abs()).collect();
            errors.sort_by(f64::total_cmp);
            let at = |share: f64| errors.get((share * errors.len() as f64) as usize).copied().unwrap_or_default();
            let values = solution.theta.iter().zip(&solution.sd).zip(priors);
            let constants = values.map(|((theta, &log_sd), Prior { name, .. })| {
                let value = theta.exp();
                Constant { name, value, log_sd }
            });
            Ok(Fitted {
                operator,
                scope: scope.to_string(),
                format: format.to_string(),
                framework: framework.to_string(),
                constants: constants.collect(),
                rows: rows.len(),
                median_error: at(0.5),
                p95_error: at(0.95),
            })
        })
        .collect()
}

struct Kernels<'a, const N: usize, L> {
    rows: &'a [&'a Measured<L>],
    priors: [Prior; N],
}

impl<const N: usize, L: Law<N>> Problem for Kernels<'_, N, L> {
    type State = [f64; N];

    fn state(&self, theta: &[f64]) -> Self::State {
        std::array::from_fn(|k| theta[k].exp())
    }

    fn priors(&self) -> &[Prior] {
        &self.priors
    }

    fn residual_count(&self) -> usize {
        self.rows.len()
    }

    fn residual(&self, index: usize, constants: &Self::State) -> f64 {
        let row = &self.rows[index];
        (row.law.time_us(constants) / row.measured_us).ln() / SIGMA
    }
}

fn fit_rows<const N: usize, L: Law<N>>(
    rows: &[&Measured<L>],
    priors: [Prior; N],
) -> Result<(Solution, [Prior; N]), SolveError> {
    let kernels = Kernels { rows, priors };
    let solution = solve(&kernels, &Options { tolerance: 1e-7, ..Options::default() })?;
    Ok((solution, kernels.priors))
}
