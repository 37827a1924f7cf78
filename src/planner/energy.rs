//! Power and energy: what devices, their hosts and the building draw at a load.

use super::PlannerError;
use super::cost::{finite, utilization};
use super::error::{above_zero, not_negative, share};
use crate::hardware::Device;
use crate::serving::Server;
use crate::units::{Joules, JoulesPerToken, RequestsPerSecond, Seconds, TokensPerSecond, UsdPerHour, Watts};
use crate::workload::Slo;
use serde::Serialize;
use std::fmt;

/// What a device draws in each phase, what its host draws beside it, and what the building adds.
///
/// All that is known of a device is its thermal design power; the rest are shares that are assumed ([`Power::IDLE_SHARE`] and its siblings name where they come from).
/// State your own where you have measured.
///
/// # Validity
/// Measured shares of decoding go from 0.2 (on an H200) to 0.9 (a small model on an A100), and grow with the batch. A prediction of energy is good to a factor of two,
/// even where the throughput is right.
///
/// ```
/// use llm_roofline::catalog::Catalog;
/// use llm_roofline::planner::Power;
/// let h100 = Catalog::embedded().device("h100-sxm-80gb")?; // 700 W
/// let power = Power::of(&h100)?;
/// assert_eq!([power.idle(), power.decode(), power.prefill(), power.host()].map(|watts| watts.to_string()), ["105 W", "455 W", "630 W", "350 W"]);
/// assert_eq!(power.to_string(), "per device 105 W idle, 455 W in decode, 630 W in prefill, and 350 W of its host; PUE 1.2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Power {
    idle: Watts,
    prefill: Watts,
    decode: Watts,
    host: Watts,
    pue: f64,
    tdp: Watts,
}

impl Power {
    /// Of the TDP, drawn by a device that holds a model and computes nothing: 59 to 62 of 400 W were measured on an A100, 25 to 29 of 300 W on an RTX 6000 Ada
    /// (chuyishang/inference-energy, `results_paste.md`). A CUDA context adds 26 to 50 W to an H100 or A100, whatever its memory holds (Vadari, The Model Parking Tax,
    /// arXiv 2605.23918).
    pub const IDLE_SHARE: f64 = 0.15;
    /// Of the TDP, drawn while prompts are computed: this phase comes close to the limit, and peaks above it (Patel et al., Characterizing Power Management Opportunities
    /// for LLMs in the Cloud, ASPLOS 2024; Splitwise, ISCA 2024, arXiv 2311.18677). The value is assumed.
    pub const PREFILL_SHARE: f64 = 0.9;
    /// Of the TDP, drawn while answers are decoded: the middle of an H100 with one sequence (300 of 700 W) and with 128 (600 W) in the ML.ENERGY benchmark v3.0, as the
    /// power model of vllm-project/semantic-router cites it. An H200 stays at 137 to 300 of 700 W (arXiv 2605.11999); an A100 with small models draws 291 to 363 W, of
    /// 400 W unless the limit of that card was higher (chuyishang/inference-energy).
    pub const DECODE_SHARE: f64 = 0.65;
    /// Of the TDP, drawn beside each device by processors, memory, network and fans, at any load: a node of eight H100 draws 8.4 kW at most, 350 W per device beyond their
    /// 700 W (Latif et al., Single-Node Power Demand During AI Training, IEEE Access 13 (2025) 61740). Cards in a plain server may have 0.1 (Clune, Another look at per
    /// token energy costs, 2025).
    pub const HOST_SHARE: f64 = 0.5;
    /// Power of the building over that of its computers: the middle of 1.05 and 1.40, between which nine of ten are assumed to be in Energy Use of AI Inference: Efficiency
    /// Pathways and Test-Time Compute (2025).
    pub const PUE: f64 = 1.2;

    /// Of a device with the shares above.
    ///
    /// # Errors
    /// [`PlannerError::NoPower`] if its thermal design power is not known.
    pub fn of(device: &Device) -> Result<Self, PlannerError> {
        let unknown = || PlannerError::NoPower { device: device.name().into() };
        Self::from_tdp(device.tdp().ok_or_else(unknown)?)
    }

    /// Of a device with this thermal design power (or power limit) and the shares above.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a power that is not above 0.
    pub fn from_tdp(tdp: Watts) -> Result<Self, PlannerError> {
        above_zero("the thermal design power in watts", tdp.as_watts())?;
        Ok(Self {
            idle: tdp * Self::IDLE_SHARE,
            prefill: tdp * Self::PREFILL_SHARE,
            decode: tdp * Self::DECODE_SHARE,
            host: tdp * Self::HOST_SHARE,
            pue: Self::PUE,
            tdp,
        })
    }

    /// With other shares of the thermal design power.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for what is no share, or for more of it without work than with work.
    pub fn with_shares(self, idle: f64, prefill: f64, decode: f64) -> Result<Self, PlannerError> {
        let prefill = share("the share of power in prefill", prefill)?;
        let decode = share("the share of power in decode", decode)?;
        let what = "the share of power without work";
        if share(what, idle)? > prefill.min(decode) {
            return Err(PlannerError::Number { what, value: idle, expected: "at most the shares of both phases" });
        }
        Ok(Self { idle: self.tdp * idle, prefill: self.tdp * prefill, decode: self.tdp * decode, ..self })
    }

    /// With so much power of the host beside each device, at any load.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a power that is negative.
    pub fn with_host(self, host_per_device: Watts) -> Result<Self, PlannerError> {
        not_negative("the power of the host in watts", host_per_device.as_watts())?;
        Ok(Self { host: host_per_device, ..self })
    }

    /// With another power usage effectiveness of the building.
    ///
    /// # Errors
    /// [`PlannerError::Number`] below 1.
    pub fn with_pue(self, pue: f64) -> Result<Self, PlannerError> {
        check_pue(pue)?;
        Ok(Self { pue, ..self })
    }

    /// A device that holds a model and computes nothing.
    pub const fn idle(&self) -> Watts {
        self.idle
    }

    /// A device that computes prompts.
    pub const fn prefill(&self) -> Watts {
        self.prefill
    }

    /// A device that decodes answers.
    pub const fn decode(&self) -> Watts {
        self.decode
    }

    /// The host, per device.
    pub const fn host(&self) -> Watts {
        self.host
    }

    /// Power of the building over that of its computers.
    pub const fn pue(&self) -> f64 {
        self.pue
    }
}

/// What one replica draws at a steady load, and what its requests and tokens take.
///
/// Names say whose energy it is: `device_` that of the accelerators alone, as tools such as `nvidia-smi` measure it; `node_` with their hosts; `facility_` with cooling
/// and losses of the building.
///
/// # Formula
/// A replica is busy if a request is in it, however few tokens its steps have. With `n` requests in it on average, and the prefill of one as
/// [`PhaseTimes`](crate::serving::PhaseTimes) has it,
/// ```text
/// busy           = 1 - e^-n, and at least rate / max_rate
/// node power     = devices (host + idle (1 - busy) + W_prefill rate prefill + W_decode (busy - rate prefill))
/// facility power = PUE * node power
/// per request    = power / rate                per output token = power / output tokens per second
/// ```
/// The rest of `node_power` beside `idle_node_power` belongs to the requests: `node power = idle + rate (prefill + decode of a request)`.
///
/// # Validity
/// `busy` is exact for requests that come independently and do not slow each other down (M/G/∞). A device draws the same in large and small steps of a phase; measured
/// power grows with the batch ([`Power::DECODE_SHARE`]).
///
/// # References
/// Shares: [`Power`]. Energy per query: [`energy_per_query`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EnergyUse {
    /// Requests per second that one replica serves.
    pub rate: RequestsPerSecond,
    /// The same over what it could serve at most.
    pub utilization: f64,
    /// The share of time in which a step runs.
    pub busy: f64,
    /// All devices of the replica.
    pub device_power: Watts,
    /// The devices and their hosts.
    pub node_power: Watts,
    /// The part of `node_power` that is drawn while no request is there.
    pub idle_node_power: Watts,
    /// The devices, their hosts and the building.
    pub facility_power: Watts,
    /// What the prompt of a request takes of devices and hosts.
    pub node_prefill_per_request: Joules,
    /// What the answer of a request takes of devices and hosts; none without requests.
    pub node_decode_per_request: Option<Joules>,
    /// A request with its share of idle time; none without requests.
    pub node_per_request: Option<Joules>,
    /// The same with the building.
    pub facility_per_request: Option<Joules>,
    /// All energy of the devices on output tokens; none without requests.
    pub device_per_output_token: Option<JoulesPerToken>,
    /// The same with hosts.
    pub node_per_output_token: Option<JoulesPerToken>,
    /// The same with the building.
    pub facility_per_output_token: Option<JoulesPerToken>,
}

impl EnergyUse {
    /// Of one replica that gets so many requests per second, independently of each other.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a rate that is negative or beyond what the replica can serve, [`PlannerError::Serving`] if it has no steady state.
    ///
    /// ```
    /// use llm_roofline::planner::{EnergyUse, Power};
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::Server;
    /// use llm_roofline::workload::Lengths;
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let power = Power::of(system.device())?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let server = Server::new(&model, &Lengths::fixed(1000, 250)?)?;
    /// let at = |share: f64| EnergyUse::new(&power, &server, server.max_rate() * share);
    /// // A tenth of the load keeps the device nearly as busy, so that a token takes several times the energy.
    /// assert!(at(0.1)?.busy > 0.6);
    /// assert!(at(0.1)?.node_per_output_token.unwrap() > at(1.0)?.node_per_output_token.unwrap() * 5.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(power: &Power, server: &Server<'_>, rate: RequestsPerSecond) -> Result<Self, PlannerError> {
        let utilization = utilization(server, rate)?;
        let present = match utilization < 1.0 {
            true => server.open_loop(rate, &Slo::default())?.summary.mean_batch.unwrap_or(0.0),
            false => f64::INFINITY,
        };
        Self::when_busy(power, server, rate, utilization, (1.0 - (-present).exp()).max(utilization))
    }

    /// Of one replica with so many clients, each of which asks again at once when it has its answer, as benchmarks do: there is always a request.
    ///
    /// # Errors
    /// [`PlannerError::Serving`] unless there are clients.
    pub fn closed_loop(power: &Power, server: &Server<'_>, concurrency: f64) -> Result<Self, PlannerError> {
        let state = server.closed_loop(concurrency, Seconds::ZERO, &Slo::default())?;
        Self::when_busy(power, server, state.rate, (state.rate / server.max_rate()).min(1.0), 1.0)
    }

    fn when_busy(
        power: &Power,
        server: &Server<'_>,
        rate: RequestsPerSecond,
        utilization: f64,
        busy: f64,
    ) -> Result<Self, PlannerError> {
        let devices = f64::from(server.model().deployment().devices_per_replica());
        let per_second = rate.as_requests_per_second();
        let prefill = server.phase_times().prefill;
        let prefill_share = (per_second * prefill.as_seconds()).min(busy);
        let shares = [(power.idle, 1.0 - busy), (power.prefill, prefill_share), (power.decode, busy - prefill_share)];
        let device_power = shares.into_iter().map(|(power, share)| power * share).sum::<Watts>() * devices;
        let node_power = finite("the power in watts", device_power + power.host * devices, Watts::as_watts)?;
        let facility_power = finite("the power in watts", node_power * power.pue, Watts::as_watts)?;
        let tokens = TokensPerSecond::from_tokens_per_second(per_second * server.mean_tokens().output);
        let of_request = |power: Watts| energy_per_request(power, rate).ok();
        let of_token = |power: Watts| energy_per_token(power, tokens).ok();
        Ok(Self {
            rate,
            utilization,
            busy,
            device_power,
            node_power,
            idle_node_power: (power.idle + power.host) * ((1.0 - busy) * devices),
            facility_power,
            node_prefill_per_request: (power.prefill + power.host) * prefill * devices,
            node_decode_per_request: of_request((power.decode + power.host) * ((busy - prefill_share) * devices)),
            node_per_request: of_request(node_power),
            facility_per_request: of_request(facility_power),
            device_per_output_token: of_token(device_power),
            node_per_output_token: of_token(node_power),
            facility_per_output_token: of_token(facility_power),
        })
    }

    /// What the electricity of the facility costs at this price per kilowatt hour.
    ///
    /// # Errors
    /// [`PlannerError::Number`] for a price that is negative.
    pub fn electricity(&self, usd_per_kwh: f64) -> Result<UsdPerHour, PlannerError> {
        let price = not_negative("the price of electricity in USD per kWh", usd_per_kwh)?;
        let cost = UsdPerHour::from_usd_per_hour(price * self.facility_power.as_kilowatts());
        finite("the cost of electricity in USD per hour", cost, UsdPerHour::as_usd_per_hour)
    }
}

/// The energy of a token of something that draws this power and makes so many per second.
///
/// # Formula
/// `J/tok = W / (tok/s)`. In kWh per million tokens it is a 3.6th of that ([`JoulesPerToken::as_kwh_per_million_tokens`]).
///
/// # Errors
/// [`PlannerError::Number`] for a power that is negative, or a rate that is not above 0.
///
/// # References
/// Clune, Another look at per token energy costs (2025).
/// ```
/// use llm_roofline::planner::energy_per_token;
/// let energy = energy_per_token("1500 W".parse()?, "41.8 tok/s".parse()?)?;
/// assert_eq!(format!("{energy:.1}, {:.1} kWh per million", energy.as_kwh_per_million_tokens()), "35.9 J/tok, 10.0 kWh per million");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn energy_per_token(power: Watts, rate: TokensPerSecond) -> Result<JoulesPerToken, PlannerError> {
    not_negative("the power in watts", power.as_watts())?;
    above_zero("the rate in tokens per second", rate.as_tokens_per_second())?;
    finite("the energy of a token in joules", power / rate, JoulesPerToken::as_joules_per_token)
}

/// The energy of a request (or any other job) of something that draws this power and serves so many per second.
///
/// # Formula
/// `J = W / (req/s)`
///
/// # Errors
/// [`PlannerError::Number`] for a power that is negative, or a rate that is not above 0.
///
/// # References
/// Inoue, arXiv 1912.06322, table 1: ResNet-50 on a V100, 22 images per joule in batches of 128, 4 alone.
/// ```
/// use llm_roofline::planner::energy_per_request;
/// let image = energy_per_request("285 W".parse()?, "6275 req/s".parse()?)?;
/// assert_eq!(format!("{:.1} per joule", 1.0 / image.as_joules()), "22.0 per joule");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn energy_per_request(power: Watts, rate: RequestsPerSecond) -> Result<Joules, PlannerError> {
    not_negative("the power in watts", power.as_watts())?;
    let rate = above_zero("the rate in requests per second", rate.as_requests_per_second())?;
    finite("the energy of a request in joules", Joules::from_joules(power.as_watts() / rate), Joules::as_joules)
}

/// The energy that the building takes for an answer of so many tokens.
///
/// # Formula
/// `E = PUE * P * L / TPS`, of a node that draws `P` and writes `TPS` tokens per second for all its requests together.
///
/// # Errors
/// [`PlannerError::Number`] for a PUE below 1, a power or length that is negative, or a rate that is not above 0.
///
/// # References
/// Energy Use of AI Inference: Efficiency Pathways and Test-Time Compute (2025), which takes 0.7 of the largest power of a node.
/// ```
/// use llm_roofline::planner::energy_per_query;
/// let energy = energy_per_query(1.2, "7.91 kW".parse()?, "2000 tok/s".parse()?, 300.0)?;
/// assert_eq!(format!("{:.4} Wh", energy.as_watt_hours()), "0.3955 Wh");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn energy_per_query(
    pue: f64,
    node_power: Watts,
    rate_total: TokensPerSecond,
    output_tokens: f64,
) -> Result<Joules, PlannerError> {
    let tokens = check_pue(pue)? * not_negative("the number of output tokens", output_tokens)?;
    let token = energy_per_token(node_power, rate_total)?.as_joules_per_token();
    finite("the energy of a query in joules", Joules::from_joules(token * tokens), Joules::as_joules)
}

fn check_pue(pue: f64) -> Result<f64, PlannerError> {
    let (what, expected) = ("the power usage effectiveness", "a finite number, 1 or more");
    if pue >= 1.0 && pue.is_finite() { Ok(pue) } else { Err(PlannerError::Number { what, value: pue, expected }) }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { idle, prefill, decode, host, pue, .. } = self;
        write!(f, "per device {idle} idle, {decode} in decode, {prefill} in prefill, and {host} of its host; PUE {pue}")
    }
}

impl fmt::Display for EnergyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device_power, node_power, facility_power, busy, idle_node_power, .. } = self;
        let percent = 100.0 * busy;
        write!(
            f,
            "{device_power} of devices, {node_power} with hosts ({idle_node_power} idle), {facility_power} in the building, busy for {percent:.0} % of the time"
        )?;
        match (self.facility_per_request, self.facility_per_output_token) {
            (Some(request), Some(token)) => {
                write!(f, ": {:.4} Wh per request, {token} of output", request.as_watt_hours())
            }
            _ => Ok(()),
        }
    }
}
