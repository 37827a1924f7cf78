//! Traces of requests: who asked when, for how much.
//!
//! | format | columns | reader |
//! |---|---|---|
//! | Azure LLM inference 2023, 2024 | `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` | [`Trace::read_azure`] |
//! | BurstGPT | `Timestamp` (s), `Request tokens`, `Response tokens`, others | [`Trace::read_burstgpt`] |
//! | Vidur | `arrived_at` (s), `num_prefill_tokens`, `num_decode_tokens` | [`Trace::read_vidur`] |
//! | Mooncake (JSON lines) | `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | [`Trace::read_mooncake`] |
//! | any CSV or JSON lines | one of the above, or `arrival_time_ns`, `input_toks`, `output_toks`, ... | [`Trace::read`] |
//!
//! Readers take text from anywhere (`impl Read`) and the name that errors shall call it by. Rows without output, as BurstGPT has for requests that
//! failed, or without prompt are left out and counted ([`Trace::left_out`]).

mod cache;
mod columns;
mod error;
mod json;
mod statistics;
mod table;
mod time;

pub use cache::PrefixReuse;
pub use error::TraceError;
pub use statistics::ArrivalStatistics;

use super::arrivals::Arrivals;
use super::asked::Workload;
use super::distribution::MAX_TOKENS;
use super::error::{WorkloadError, checked, positive};
use super::lengths::Lengths;
use super::prefix::SharedPrefix;
use crate::units::{RequestsPerSecond, Seconds};
use columns::Columns;
use std::io::Read;

/// Tokens that one block of a Mooncake trace stands for (Qin et al., "Mooncake", FAST 2025, section on the trace).
pub const MOONCAKE_BLOCK_TOKENS: u64 = 512;

/// One request of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceRequest {
    /// When it arrived, from the trace's own start.
    pub arrival: Seconds,
    /// Tokens of its prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Tokens of its prompt that are found in the prefix cache.
    pub cached_tokens: u64,
    /// What the prompt consists of, block by block; equal numbers stand for equal prompts up to there. Empty where the trace does not say.
    pub block_hashes: Vec<u64>,
}

/// Requests in the order of their arrival.
///
/// ```
/// use llm_roofline::workload::Trace;
///
/// let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
///             2023-11-16 18:15:46.6805900,374,44\n\
///             2023-11-16 18:15:50.9951690,396,109\n\
///             2023-11-16 18:15:51.2224670,879,55\n";
/// let trace = Trace::read_azure("conv.csv", text.as_bytes())?;
/// assert_eq!(trace.requests()[1].arrival.to_string(), "4.31 s");
/// assert_eq!(trace.lengths().moments().prompt, (374.0 + 396.0 + 879.0) / 3.0);
/// assert_eq!(format!("{:.2}", trace.arrivals().mean_rate.unwrap()), "0.44 req/s");
///
/// let error = Trace::read_azure("conv.csv", "TIMESTAMP,ContextToken,GeneratedTokens\n".as_bytes()).unwrap_err();
/// assert_eq!(error.to_string(), "conv.csv, line 1: no column `ContextTokens` (is `ContextToken` meant?)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    requests: Vec<TraceRequest>,
    lengths: Lengths,
    left_out: u64,
    block_tokens: u64,
}

impl Trace {
    /// A trace of requests; they are put in the order of their arrival.
    ///
    /// # Errors
    /// [`WorkloadError::TooFew`] without requests, [`WorkloadError::OutOfRange`] for times that are negative or not finite, the errors of
    /// [`Lengths::fixed`] for lengths, and [`WorkloadError::TooLong`] for more cached tokens than the prompt has.
    pub fn new(mut requests: Vec<TraceRequest>) -> Result<Self, WorkloadError> {
        let lengths =
            Lengths::pairs(requests.iter().map(|request| (request.prompt_tokens, request.output_tokens)).collect())?;
        for request in &requests {
            let time = request.arrival.as_seconds();
            checked("arrival", time, "a number of seconds, at least 0", time >= 0.0)?;
            if request.cached_tokens > request.prompt_tokens {
                let (tokens, limit) = (request.cached_tokens, request.prompt_tokens);
                return Err(WorkloadError::TooLong { what: "cached part of a prompt", tokens, limit });
            }
        }
        requests.sort_by(|a, b| a.arrival.as_seconds().total_cmp(&b.arrival.as_seconds()));
        Ok(Self { requests, lengths, left_out: 0, block_tokens: MOONCAKE_BLOCK_TOKENS })
    }

    /// Reads the Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset). The first request comes at 0.
    ///
    /// # Errors
    /// [`TraceError`] with file, line and column.
    pub fn read_azure(file: &str, text: impl Read) -> Result<Self, TraceError> {
        table::read(file, text, &columns::AZURE)
    }

    /// Reads BurstGPT (Wang et al., arXiv:2401.17644; github.com/HPMLL/BurstGPT). Requests that failed have no response and are left out. Times
    /// count from the midnight before the trace began: see [`from_first`](Self::from_first).
    ///
    /// # Errors
    /// [`TraceError`] with file, line and column.
    pub fn read_burstgpt(file: &str, text: impl Read) -> Result<Self, TraceError> {
        table::read(file, text, &columns::BURSTGPT)
    }

    /// Reads the processed traces of Vidur (Agrawal et al., arXiv:2405.05465; github.com/microsoft/vidur), with or without arrivals.
    ///
    /// # Errors
    /// [`TraceError`] with file, line and column.
    pub fn read_vidur(file: &str, text: impl Read) -> Result<Self, TraceError> {
        table::read(file, text, &columns::VIDUR)
    }

    /// Reads Mooncake's traces (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake): JSON lines with the blocks of 512 tokens that a prompt
    /// consists of. [`prefix_reuse`](Self::prefix_reuse) says what a cache would save.
    ///
    /// # Errors
    /// [`TraceError`] with file, line and key.
    pub fn read_mooncake(file: &str, text: impl Read) -> Result<Self, TraceError> {
        json::read(file, text, &columns::MOONCAKE)
    }

    /// Reads a trace of any known columns, as CSV with a header or as one JSON object per line. Without arrivals, all come at once.
    ///
    /// # Errors
    /// [`TraceError`] with file, line and column.
    pub fn read(file: &str, mut text: impl Read) -> Result<Self, TraceError> {
        let mut start = [0_u8; 1];
        let mut skipped = Vec::new();
        // A byte order mark and blanks may come before the first brace.
        while text.read_exact(&mut start).is_ok() {
            skipped.push(start[0]);
            if !start[0].is_ascii_whitespace() && !matches!(start[0], 0xEF | 0xBB | 0xBF) {
                break;
            }
        }
        let whole = skipped.as_slice().chain(text);
        if start[0] == b'{' { json::read(file, whole, &columns::ANY) } else { table::read(file, whole, &columns::ANY) }
    }

    /// The requests, in the order of their arrival; at least one.
    pub fn requests(&self) -> &[TraceRequest] {
        &self.requests
    }

    /// How many rows were left out because they had no prompt or no output.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Their lengths, pair by pair.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Prompt tokens, output tokens and cached tokens of all requests.
    pub fn total_tokens(&self) -> (u64, u64, u64) {
        self.requests.iter().fold((0, 0, 0), |(prompt, output, cached), request| {
            (prompt + request.prompt_tokens, output + request.output_tokens, cached + request.cached_tokens)
        })
    }

    /// Requests that arrive from a time on and before another, which then arrive that much earlier. None if there are none.
    #[must_use]
    pub fn window(&self, from: Seconds, to: Seconds) -> Option<Self> {
        let inside = |request: &&TraceRequest| request.arrival >= from && request.arrival < to;
        let shifted = |request: &TraceRequest| TraceRequest { arrival: request.arrival - from, ..request.clone() };
        self.with(self.requests.iter().filter(inside).map(shifted).collect())
    }

    /// The first so many requests; all if there are fewer, none for 0.
    #[must_use]
    pub fn first(&self, count: usize) -> Option<Self> {
        self.with(self.requests.iter().take(count).cloned().collect())
    }

    /// Requests whose prompt and answer together have at most so many tokens, as a model's context holds. None if there are none.
    #[must_use]
    pub fn up_to(&self, tokens: u64) -> Option<Self> {
        let fits = |request: &&TraceRequest| request.prompt_tokens + request.output_tokens <= tokens;
        self.with(self.requests.iter().filter(fits).cloned().collect())
    }

    /// The same requests, the first of which arrives at 0.
    #[must_use]
    pub fn from_first(&self) -> Self {
        let start = self.requests.first().map_or(Seconds::ZERO, |request| request.arrival);
        let mut shifted = self.clone();
        shifted.requests.iter_mut().for_each(|request| request.arrival -= start);
        shifted
    }

    /// The same requests `factor` times as fast.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for a factor that is not a finite number above 0, or that moves requests beyond all time.
    pub fn faster(&self, factor: f64) -> Result<Self, WorkloadError> {
        positive("factor of the rate", factor, "a number above 0")?;
        let mut faster = self.clone();
        for request in &mut faster.requests {
            request.arrival = request.arrival / factor;
            checked("arrival", request.arrival.as_seconds(), "a finite number of seconds", true)?;
        }
        Ok(faster)
    }

    /// The same requests at another mean rate; their pattern stays.
    ///
    /// # Errors
    /// [`WorkloadError::NoRate`] if all come at once, else as [`faster`](Self::faster).
    pub fn at_rate(&self, rate: RequestsPerSecond) -> Result<Self, WorkloadError> {
        let mean =
            self.arrivals().mean_rate.ok_or(WorkloadError::NoRate { arrivals: "requests that all come at once" })?;
        self.faster(rate / mean)
    }

    /// A random workload with the trace's lengths, rate, variation of gaps and share of cached tokens.
    ///
    /// # Errors
    /// [`WorkloadError`] if the rate is beyond what [`Arrivals`] can have.
    pub fn workload(&self) -> Result<Workload, WorkloadError> {
        let statistics = self.arrivals();
        let arrivals = match (statistics.mean_rate, statistics.gap_variation) {
            (Some(rate), Some(variation)) => Arrivals::gamma(rate, (1.0 / variation).clamp(1e-4, 1e9))?,
            (Some(rate), None) => Arrivals::poisson(rate)?,
            _ => Arrivals::all_at_once(self.requests.len() as u64)?,
        };
        let workload = Workload::new(arrivals, self.lengths.clone());
        let (prompt, _, cached) = self.total_tokens();
        if cached == 0 {
            return Ok(workload);
        }
        Ok(workload.with_prefix(SharedPrefix::share(cached as f64 / prompt as f64)?))
    }

    fn with(&self, requests: Vec<TraceRequest>) -> Option<Self> {
        Some(Self { block_tokens: self.block_tokens, ..Self::new(requests).ok()? })
    }
}

/// Collects the rows of a file.
struct Rows<'a> {
    file: &'a str,
    columns: &'a Columns,
    requests: Vec<TraceRequest>,
    left_out: u64,
    /// The first date, from which dates count, in nanoseconds.
    origin: Option<i128>,
}

impl<'a> Rows<'a> {
    fn new(file: &'a str, columns: &'a Columns) -> Self {
        Self { file, columns, requests: Vec::new(), left_out: 0, origin: None }
    }

    fn add(&mut self, request: TraceRequest) {
        if request.prompt_tokens == 0 || request.output_tokens == 0 {
            self.left_out += 1;
        } else {
            self.requests.push(request);
        }
    }

    /// The time that a field tells.
    fn arrival(&mut self, line: u64, column: &str, text: &str) -> Result<Seconds, TraceError> {
        let wrong = |expected| self.wrong(line, column, text, expected);
        if let Ok(number) = text.trim().parse::<f64>() {
            let seconds = number * self.columns.time_unit(column);
            let in_range = (0.0..=1e15).contains(&seconds);
            return in_range.then(|| Seconds::from_seconds(seconds)).ok_or_else(|| wrong("a time from 0 to 10^15 s"));
        }
        let nanoseconds =
            time::parse(text).ok_or_else(|| wrong("a time: a number, or a date like 2023-11-16 18:15:46.68"))?;
        let origin = *self.origin.get_or_insert(nanoseconds);
        Ok(Seconds::from_seconds((nanoseconds - origin) as f64 / 1e9))
    }

    /// The count that a field tells.
    fn tokens(&self, line: u64, column: &str, text: &str) -> Result<u64, TraceError> {
        let whole = text.trim().parse::<u64>().ok().or_else(|| {
            // Tables that went through floats write 374.0.
            let number = text.trim().parse::<f64>().ok()?;
            (number >= 0.0 && number <= MAX_TOKENS as f64 && number.fract() == 0.0).then_some(number as u64)
        });
        whole
            .filter(|tokens| *tokens <= MAX_TOKENS)
            .ok_or_else(|| self.wrong(line, column, text, "a whole number of tokens, at most 2^40"))
    }

    fn wrong(&self, line: u64, column: &str, found: &str, expected: &'static str) -> TraceError {
        let found = found.chars().take(80).collect();
        TraceError::Field { file: self.file.into(), line, column: column.into(), found, expected }
    }

    fn finish(mut self) -> Result<Trace, TraceError> {
        if self.requests.is_empty() {
            return Err(TraceError::Empty { file: self.file.into(), left_out: self.left_out });
        }
        // The first date of the file may not be the earliest.
        if self.origin.is_some() {
            let earliest =
                self.requests.iter().map(|request| request.arrival).reduce(Seconds::min).unwrap_or(Seconds::ZERO);
            self.requests.iter_mut().for_each(|request| request.arrival -= earliest);
        }
        let malformed = |error: WorkloadError| TraceError::Malformed {
            file: self.file.into(),
            line: None,
            message: error.to_string(),
        };
        let trace = Trace::new(self.requests).map_err(malformed)?;
        Ok(Trace { left_out: self.left_out, ..trace })
    }
}
