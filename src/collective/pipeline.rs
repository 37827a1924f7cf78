//! Pipelines of stages.

/// The share of time that the stages of a pipeline are idle, filling and draining included: `(p-1)/(m+p-1)` for `p` stages and `m`
/// micro-batches of equal cost.
///
/// One stage is never idle, and without micro-batches nothing else happens.
///
/// Source: Huang et al., GPipe (arXiv 1811.06965), section 2.
///
/// ```
/// use llm_roofline::collective::pipeline_bubble;
/// assert_eq!(pipeline_bubble(4, 1), 0.75);
/// assert_eq!(pipeline_bubble(1, 8), 0.0);
/// ```
pub fn pipeline_bubble(stages: u64, micro_batches: u64) -> f64 {
    let idle = stages.saturating_sub(1) as f64;
    if idle == 0.0 { 0.0 } else { idle / (micro_batches as f64 + idle) }
}
