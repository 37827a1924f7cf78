//! Robust least squares with prior knowledge: the most probable parameters, and how well the data determine them.
//!
//! # Formula
//! Minimizes `sum_i w_i * rho(r_i(theta)) + sum_k ((theta_k - mean_k) / sd_k)^2` within `lo_k <= theta_k <= hi_k`, where
//! `rho(r) = 2 * (sqrt(1 + r^2) - 1)`: `r^2` for small residuals, `2 |r|` for large ones, so that an outlier pulls with a bounded
//! force. A residual is typically `(ln predicted - ln measured) / sigma`, and a parameter the logarithm of a physical constant.
//! The objective is then `-2 ln(posterior)` up to a constant.
//!
//! Each iteration linearizes the residuals and solves the damped normal equations
//! `(J'VJ + D + lambda * diag(J'VJ + D)) step = -(J'Vr + D (theta - mean))` with `V_i = w_i / sqrt(1 + r_i^2)` (iterative
//! reweighting) and `D_k = 1 / sd_k^2`. Parameters that press against a bound are left out of the step.
//!
//! The same problem gives the same answer to the last bit, whatever the number of threads: each residual and each derivative is
//! computed by itself, and all sums run in the order of the residuals.
//!
//! # References
//! Marquardt, An algorithm for least-squares estimation of nonlinear parameters, 1963, doi:10.1137/0111030.
//! Triggs et al., Bundle adjustment - a modern synthesis, 2000, doi:10.1007/3-540-44480-7_21 (robust losses, section 3.3).

use nalgebra::{Cholesky, DMatrix, DVector};
use std::num::NonZeroUsize;

/// What is known of a parameter before the data: a Gaussian, cut off at two bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Prior {
    /// Name for reports and errors.
    pub name: String,
    /// Most probable value; also where the search starts.
    pub mean: f64,
    /// Standard deviation, positive.
    pub sd: f64,
    /// Smallest allowed value.
    pub lo: f64,
    /// Largest allowed value; a parameter with `lo == hi` is fixed.
    pub hi: f64,
}

impl Prior {
    /// A Gaussian without bounds.
    pub fn new(name: impl Into<String>, mean: f64, sd: f64) -> Self {
        Self { name: name.into(), mean, sd, lo: f64::NEG_INFINITY, hi: f64::INFINITY }
    }

    /// The prior of `ln x` for a positive constant `x` that is `typical` within a factor `exp(log_sd)`.
    pub fn ln(name: impl Into<String>, typical: f64, log_sd: f64) -> Self {
        Self::new(name, typical.ln(), log_sd)
    }

    /// The same prior, cut off below `lo` and above `hi`.
    #[must_use]
    pub fn within(self, lo: f64, hi: f64) -> Self {
        Self { lo, hi, ..self }
    }

    fn check(&self) -> Result<(), SolveError> {
        let sound = self.mean.is_finite() && self.sd.is_finite() && self.sd > 0.0;
        match sound && self.lo <= self.hi && self.lo < f64::INFINITY && self.hi > f64::NEG_INFINITY {
            true => Ok(()),
            false => Err(SolveError::Prior { prior: self.clone() }),
        }
    }

    fn is_free(&self) -> bool {
        self.lo < self.hi
    }
}

/// A law to fit: residuals as functions of the parameters.
pub trait Problem: Sync {
    /// What all residuals need of the parameters, computed once per set of parameters.
    type State: Send + Sync;

    /// Prepares the residuals at these parameters.
    fn state(&self, theta: &[f64]) -> Self::State;

    /// The same when only one parameter differs from those of a state.
    fn state_beside(&self, _state: &Self::State, theta: &[f64], _changed: usize) -> Self::State {
        self.state(theta)
    }

    /// What is known of each parameter beforehand; their order is the order of `theta`.
    fn priors(&self) -> &[Prior];

    /// Number of residuals.
    fn residual_count(&self) -> usize;

    /// One residual, in standard deviations of its measurement.
    fn residual(&self, index: usize, state: &Self::State) -> f64;

    /// Weight of a residual: how many measurements it stands for.
    fn weight(&self, _index: usize) -> f64 {
        1.0
    }

    /// Whether a residual can depend on a parameter; derivatives that cannot differ from zero are not computed.
    fn depends(&self, _index: usize, _parameter: usize) -> bool {
        true
    }
}

/// How long to search, and with how many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Threads that compute residuals; the result does not depend on it.
    pub threads: NonZeroUsize,
    /// Iterations after which the search gives up.
    pub max_iterations: usize,
    /// The search ends when an iteration without strong damping improves the objective by less than this share.
    pub tolerance: f64,
    /// Step of the forward differences, as a share of a parameter or of 1, whichever is larger.
    pub difference: f64,
}

impl Default for Options {
    fn default() -> Self {
        const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);
        Self { threads: TWO, max_iterations: 200, tolerance: 1e-9, difference: 1e-6 }
    }
}

/// The most probable parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Solution {
    /// Parameters, in the order of the priors.
    pub theta: Vec<f64>,
    /// Posterior standard deviation of each parameter: root of the diagonal of the inverse of half the Hessian of the objective
    /// (Laplace approximation, second derivatives of the residuals neglected); 0 for a fixed parameter.
    pub sd: Vec<f64>,
    /// Whether each parameter ended on one of its bounds; its `sd` is then that of the law without the bound.
    pub at_bound: Vec<bool>,
    /// Residual of each measurement.
    pub residuals: Vec<f64>,
    /// Value of the minimized function.
    pub objective: f64,
    /// Iterations used.
    pub iterations: usize,
    /// Whether the search ended by itself rather than at [`Options::max_iterations`].
    pub converged: bool,
}

/// Why a problem cannot be solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// A prior that is not a distribution.
    #[error("prior of {}: mean {}, sd {}, bounds {}..{}; sd must be positive, mean and sd finite, bounds in order",
        prior.name, prior.mean, prior.sd, prior.lo, prior.hi)]
    Prior {
        /// The prior.
        prior: Prior,
    },
    /// A start of the wrong length or not finite.
    #[error("the start has {given} finite values for {expected} parameters")]
    Start {
        /// Finite values given.
        given: usize,
        /// Parameters of the problem.
        expected: usize,
    },
    /// A weight that is negative or not finite.
    #[error("weight of residual {index} is {value}, it must be finite and not negative")]
    Weight {
        /// Residual.
        index: usize,
        /// Its weight.
        value: f64,
    },
    /// A residual or its derivative that is not a number.
    #[error("residual {index} is {value} at or beside the current parameters")]
    Residual {
        /// Residual.
        index: usize,
        /// Its value or its derivative.
        value: f64,
    },
    /// Normal equations that have no unique solution in floating point.
    #[error("the normal equations are not positive definite; are some priors wider than the data can support?")]
    Singular,
}

/// Minimizes the objective, starting from the means of the priors.
///
/// # Errors
/// See [`SolveError`].
///
/// # Examples
/// Efficiency and fixed cost of a kernel from three measured times in us; its ideal times are 10, 100 and 1000 us. The times fit 5 us
/// and 0.8 exactly, and the prior of 3 us pulls a little.
/// ```
/// use llm_roofline::calibrate::fit::solver::{Options, Prior, Problem, solve};
///
/// struct Kernel([Prior; 2]);
///
/// impl Problem for Kernel {
///     type State = [f64; 2];
///     fn state(&self, theta: &[f64]) -> Self::State {
///         [theta[0].exp(), theta[1].exp()]
///     }
///     fn priors(&self) -> &[Prior] {
///         &self.0
///     }
///     fn residual_count(&self) -> usize {
///         3
///     }
///     fn residual(&self, index: usize, [cost, efficiency]: &Self::State) -> f64 {
///         let (ideal, measured) = [(10.0, 17.5), (100.0, 130.0), (1000.0, 1255.0)][index];
///         let predicted = cost + ideal / efficiency;
///         f64::ln(predicted / measured) / 0.05
///     }
/// }
///
/// let kernel = Kernel([Prior::ln("fixed cost", 3.0, 1.0), Prior::ln("efficiency", 0.7, 0.5)]);
/// let found = solve(&kernel, &Options::default())?;
/// let [cost, efficiency] = [found.theta[0].exp(), found.theta[1].exp()];
/// assert_eq!(format!("{cost:.2} us, {efficiency:.2} +- {:.0} %", found.sd[1] * 100.0), "4.88 us, 0.80 +- 4 %");
/// # Ok::<(), llm_roofline::calibrate::fit::solver::SolveError>(())
/// ```
pub fn solve<P: Problem>(problem: &P, options: &Options) -> Result<Solution, SolveError> {
    let means: Vec<f64> = problem.priors().iter().map(|prior| prior.mean).collect();
    solve_from(problem, &means, options)
}

/// Minimizes the objective from another start; where there are several minima, the start decides.
///
/// # Errors
/// See [`SolveError`].
pub fn solve_from<P: Problem>(problem: &P, start: &[f64], options: &Options) -> Result<Solution, SolveError> {
    let search = Search::new(problem, *options)?;
    let priors = problem.priors();
    let finite = start.iter().filter(|value| value.is_finite()).count();
    if start.len() != priors.len() || finite != priors.len() {
        return Err(SolveError::Start { given: finite, expected: priors.len() });
    }
    let mut point = search.point(search.clamped(start.iter().copied()))?;
    let mut damping = 1e-3;
    let mut iterations = 0;
    let mut converged = false;
    while !converged && iterations < options.max_iterations {
        iterations += 1;
        let slopes = search.slopes(&point)?;
        let normal = search.normal(&point, &slopes, |r| 1.0 / r.hypot(1.0));
        let before = point.objective;
        match search.descend(&point, &normal, &mut damping)? {
            Some(better) => point = better,
            None => converged = true,
        }
        // A heavily damped step improves little wherever it is taken.
        converged |= damping <= 1.0 && before - point.objective <= options.tolerance * (1.0 + point.objective);
    }
    let slopes = search.slopes(&point)?;
    let sd = search.posterior(&point, &slopes)?;
    let at_bound = point.theta.iter().zip(priors).map(|(&value, p)| value <= p.lo || value >= p.hi).collect();
    let Point { theta, residuals, objective } = point;
    Ok(Solution { theta, sd, at_bound, residuals, objective, iterations, converged })
}

/// Parameters with what follows from them.
struct Point {
    theta: Vec<f64>,
    residuals: Vec<f64>,
    objective: f64,
}

/// Derivatives of one residual by the parameters, or of the residuals by one parameter: index and slope.
type Slopes = Vec<(usize, f64)>;

/// Half the Hessian and half the gradient of the objective.
struct Normal {
    matrix: DMatrix<f64>,
    gradient: DVector<f64>,
}

struct Search<'a, P> {
    problem: &'a P,
    priors: &'a [Prior],
    weights: Vec<f64>,
    options: Options,
}

impl<'a, P: Problem> Search<'a, P> {
    fn new(problem: &'a P, options: Options) -> Result<Self, SolveError> {
        let priors = problem.priors();
        priors.iter().try_for_each(Prior::check)?;
        let weights: Vec<f64> = (0..problem.residual_count()).map(|index| problem.weight(index)).collect();
        match weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            Some(index) => Err(SolveError::Weight { index, value: problem.weight(index) }),
            None => Ok(Self { problem, priors, weights, options }),
        }
    }

    fn clamped(&self, theta: impl Iterator<Item = f64>) -> Vec<f64> {
        theta.zip(self.priors).map(|(value, prior)| value.clamp(prior.lo, prior.hi)).collect()
    }

    /// Computes `job` for every residual; each thread takes one run of neighbours.
    fn each<T: Send>(&self, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
        self.each_of(self.weights.len(), job)
    }

    /// Computes `job` for `count` indices.
    fn each_of<T: Send>(&self, count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let run = count.div_ceil(self.options.threads.get()).max(1);
        let job = &job;
        std::thread::scope(|scope| {
            let starts = (0..count).step_by(run);
            let threads: Vec<_> = starts
                .map(|start| scope.spawn(move || (start..count.min(start + run)).map(job).collect::<Vec<T>>()))
                .collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.flatten().collect()
        })
    }

    fn point(&self, theta: Vec<f64>) -> Result<Point, SolveError> {
        let state = self.problem.state(&theta);
        let residuals = self.each(|index| self.problem.residual(index, &state));
        let data: f64 = residuals.iter().zip(&self.weights).map(|(&r, w)| w * 2.0 * (r.hypot(1.0) - 1.0)).sum();
        let prior: f64 = theta.iter().zip(self.priors).map(|(value, p)| ((value - p.mean) / p.sd).powi(2)).sum();
        match residuals.iter().zip(0..).find(|(r, _)| !r.is_finite()) {
            Some((&value, index)) => Err(SolveError::Residual { index, value }),
            None => Ok(Point { theta, residuals, objective: data + prior }),
        }
    }

    /// Forward differences, backward ones where a bound is in the way.
    fn slopes(&self, point: &Point) -> Result<Vec<Slopes>, SolveError> {
        let here = self.problem.state(&point.theta);
        let columns = self.each_of(self.priors.len(), |parameter| self.column(point, &here, parameter));
        let mut rows = vec![Slopes::new(); self.weights.len()];
        for (parameter, column) in columns.into_iter().enumerate() {
            for (index, slope) in column? {
                rows[index].push((parameter, slope));
            }
        }
        Ok(rows)
    }

    /// Derivatives of the residuals by one parameter.
    fn column(&self, point: &Point, here: &P::State, parameter: usize) -> Result<Slopes, SolveError> {
        let (value, prior) = (point.theta[parameter], &self.priors[parameter]);
        if !prior.is_free() {
            return Ok(Slopes::new());
        }
        let step = self.options.difference * value.abs().max(1.0);
        let mut theta = point.theta.clone();
        theta[parameter] = if value + step <= prior.hi { value + step } else { value - step };
        let (beside, state) = (theta[parameter], self.problem.state_beside(here, &theta, parameter));
        let indices = (0..self.weights.len()).filter(|&index| self.problem.depends(index, parameter));
        let slopes = indices.map(|index| {
            let slope = (self.problem.residual(index, &state) - point.residuals[index]) / (beside - value);
            if slope.is_finite() { Ok((index, slope)) } else { Err(SolveError::Residual { index, value: slope }) }
        });
        slopes.collect()
    }

    /// Normal equations with each residual weighted by `curvature` of the loss.
    fn normal(&self, point: &Point, slopes: &[Slopes], curvature: impl Fn(f64) -> f64) -> Normal {
        let count = self.priors.len();
        let mut matrix = DMatrix::zeros(count, count);
        let mut gradient = DVector::zeros(count);
        for ((&r, row), &weight) in point.residuals.iter().zip(slopes).zip(&self.weights) {
            let v = weight * curvature(r);
            let force = weight * r / r.hypot(1.0);
            for (position, &(column, a)) in row.iter().enumerate() {
                gradient[column] += force * a;
                for &(line, b) in &row[position..] {
                    matrix[(line, column)] += v * a * b;
                }
            }
        }
        for (k, (value, prior)) in point.theta.iter().zip(self.priors).enumerate() {
            matrix[(k, k)] += prior.sd.powi(-2);
            gradient[k] += (value - prior.mean) / prior.sd.powi(2);
        }
        Normal { matrix, gradient }
    }

    /// Raises the damping until a step improves the objective; `None` when none does.
    fn descend(&self, point: &Point, normal: &Normal, damping: &mut f64) -> Result<Option<Point>, SolveError> {
        let moving = |k: usize| {
            let (value, prior, slope) = (point.theta[k], &self.priors[k], normal.gradient[k]);
            !(value <= prior.lo && slope >= 0.0 || value >= prior.hi && slope <= 0.0)
        };
        let free: Vec<usize> = (0..self.priors.len()).filter(|&k| moving(k)).collect();
        let gradient = normal.gradient.select_rows(&free);
        let matrix = normal.matrix.select_rows(&free).select_columns(&free);
        while *damping < 1e12 {
            let mut damped = matrix.clone();
            for k in 0..free.len() {
                damped[(k, k)] *= 1.0 + *damping;
            }
            let step = Cholesky::new(damped).ok_or(SolveError::Singular)?.solve(&gradient);
            let mut theta = point.theta.clone();
            for (&k, step) in free.iter().zip(step.iter()) {
                theta[k] -= step;
            }
            match self.point(self.clamped(theta.into_iter())) {
                Ok(trial) if trial.objective < point.objective => {
                    *damping = (*damping / 5.0).max(1e-12);
                    return Ok(Some(trial));
                }
                _ => *damping *= 4.0,
            }
        }
        Ok(None)
    }

    fn posterior(&self, point: &Point, slopes: &[Slopes]) -> Result<Vec<f64>, SolveError> {
        let normal = self.normal(point, slopes, |r| r.hypot(1.0).powi(-3));
        let inverse = Cholesky::new(normal.matrix).ok_or(SolveError::Singular)?.inverse();
        let sds = self.priors.iter().zip(inverse.diagonal().iter().map(|variance| variance.sqrt()).collect::<Vec<_>>());
        Ok(sds.map(|(prior, sd)| if prior.is_free() { sd } else { 0.0 }).collect())
    }
}
