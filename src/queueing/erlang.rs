//! Erlang's two formulas: how often all servers are busy.

use super::{QueueError, check};

/// The most servers that the formulas are evaluated for.
pub(super) const SERVER_LIMIT: u64 = 100_000_000;

/// Erlang B: probability that an arrival finds all servers busy and is lost.
///
/// # Formula
/// `B = (a^c/c!) / sum over k from 0 to c of a^k/k!` for `servers` servers `c` and the offered load `a` (arrival rate times mean service time). Evaluated as
/// `1/B = 1 + c/a + c(c-1)/a^2 + ...`: positive terms only, so all digits are right for any number of servers; with many servers and a high load
/// a few times `sqrt(c)` terms suffice.
///
/// # Errors
/// [`QueueError::Count`] for more than 100 million servers, [`QueueError::Number`] for a load that is not from 0 to 1e90.
///
/// # Validity
/// Poisson arrivals; service times of any distribution.
///
/// ```
/// use llm_roofline::queueing::erlang_b;
///
/// assert_eq!(format!("{:.6}", erlang_b(3, 2.0)?), "0.210526"); // 4/19
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
pub fn erlang_b(servers: u64, offered_load: f64) -> Result<f64, QueueError> {
    let servers = check::count("servers", servers, 0, SERVER_LIMIT)?;
    let offered_load = check::not_negative("offered load", offered_load)?;
    if servers == 0 || offered_load < 1e-200 {
        return Ok(if servers == 0 { 1.0 } else { 0.0 });
    }
    let per_load = 1.0 / offered_load;
    let (mut term, mut sum, mut left) = (1.0, 1.0, servers as f64);
    while left > 0.0 {
        term *= left * per_load;
        sum += term;
        // Once terms shrink they never grow again; a sum that overflows is a probability of zero.
        if (left < offered_load && term * offered_load < sum * 1e-17 * (offered_load - left)) || sum == f64::INFINITY {
            break;
        }
        left -= 1.0;
    }
    Ok(1.0 / sum)
}

/// Erlang C: probability that an arrival finds all servers busy and has to wait.
///
/// # Formula
/// `C = B / (1 - rho (1 - B))` with Erlang B and the load per server `rho = a/c`.
///
/// # Errors
/// As [`erlang_b`]; [`QueueError::Count`] without servers, [`QueueError::Unstable`] if the load per server is not below 1.
///
/// # Validity
/// Poisson arrivals, exponential services; for other services an approximation.
///
/// ```
/// use llm_roofline::queueing::erlang_c;
///
/// assert_eq!(format!("{:.6}", erlang_c(3, 2.0)?), "0.444444"); // 4/9
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
pub fn erlang_c(servers: u64, offered_load: f64) -> Result<f64, QueueError> {
    check::count("servers", servers, 1, SERVER_LIMIT)?;
    let rho = check::stable(check::not_negative("offered load", offered_load)? / servers as f64)?;
    let lost = erlang_b(servers, offered_load)?;
    Ok((lost / (1.0 - rho + rho * lost)).min(1.0))
}

/// How many servers to employ so that `servers` of them work, if a share `absent` of each one's time is lost (breaks, failures, updates):
/// `servers / (1 - absent)`, rounded up.
///
/// # Errors
/// [`QueueError::Number`] for a share that is not from 0 to 0.999999, [`QueueError::Count`] for more than 100 million servers.
///
/// ```
/// use llm_roofline::queueing::servers_with_absence;
///
/// assert_eq!(servers_with_absence(14, 0.3)?, 20);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
pub fn servers_with_absence(servers: u64, absent: f64) -> Result<u64, QueueError> {
    /// 14 of 0.7 are 20, although binary numbers make it a little more.
    const ROUNDING: f64 = 1e-9;
    let servers = check::count("servers", servers, 0, SERVER_LIMIT)? as f64;
    let present = 1.0 - check::within("share of absence", absent, 0.0, 0.999_999)?;
    Ok((servers / present * (1.0 - ROUNDING)).ceil() as u64)
}
