//! Published numbers of queueing theory, each recomputed with the public API.
//!
//! `tests/data/golden_queueing.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is skipped, and
//! why.

#[path = "common/golden.rs"]
mod golden;
#[path = "common/table.rs"]
mod table;

use golden::{Inputs, reproduce};
use llm_roofline::numeric::{Tolerance, find_root_above, fit_line};
use llm_roofline::queueing::{
    BatchQueue, BatchTime, BirthDeath, BirthDeathSummary, ClosedNetwork, ClosedSolution, LimitedBatchQueue, Md1, Mdc,
    Mg1, Mgc, Mm1, Mmc, MphC, ProcessorSharing, Service, Station, TwoPhase, WaitFormula, erlang_b, erlang_c,
    mean_sojourn_in_stages, mean_sojourn_sped_up, servers_with_absence,
};
use table::Row;

const TABLE: &str = include_str!("data/golden_queueing.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 150;
const SKIPPED: usize = 5;

impl Inputs<'_> {
    /// Numbers separated by bars.
    fn list(&self, name: &str) -> Vec<f64> {
        self.text(name).split('|').map(|text| text.parse().unwrap()).collect()
    }

    /// The call centre of the first rows.
    fn call_centre(&self) -> Mmc {
        let rate = self.number("transactions") / self.number("interval_min");
        Mmc::new(rate, self.number("aht_min"), self.count("servers")).unwrap()
    }

    fn service(&self) -> Service {
        let third = self.stated("ES3").map(|_| self.number("ES3"));
        Service::from_moments(self.number("ES"), self.number("ES2"), third).unwrap()
    }

    /// Offered load of several servers with a mean service time of 1.
    fn offered(&self) -> f64 {
        self.number("rho") * self.number("servers")
    }

    /// The mean wait of several servers, exactly.
    fn exact_wait(&self) -> f64 {
        let (rate, servers) = (self.offered(), self.count("servers"));
        let phases = |scv| MphC::new(rate, TwoPhase::with_scv(1.0, scv).unwrap(), servers).unwrap().mean_wait();
        match self.stated("model") {
            None | Some("MD" | "M/D/c") => Mdc::new(rate, 1.0, servers).unwrap().mean_wait(),
            Some("E2" | "M/E2/c") => phases(0.5),
            Some("H2" | "M/H2/c balanced means SCV=4") => phases(4.0),
            Some(other) => panic!("{}: model {other}", self.0.id()),
        }
    }

    fn wait_by(&self, formula: WaitFormula) -> f64 {
        let service = Service::with_scv(1.0, self.number("cs2")).unwrap();
        Mgc::new(self.offered(), service, self.count("servers")).unwrap().mean_wait_by(formula).unwrap()
    }

    /// Times of batches in milliseconds, or with `watts` their energy in joules.
    fn batches(&self, watts: bool) -> Vec<(f64, f64)> {
        let factors = if watts { self.list("W") } else { vec![1e3; self.list("batch").len()] };
        let table = self.list("batch").into_iter().zip(self.list("img_per_s")).zip(factors);
        table.map(|((batch, rate), factor)| (batch, factor * batch / rate)).collect()
    }

    fn batch_queue(&self) -> BatchQueue {
        let time = BatchTime::new(self.number("alpha_ms"), self.number("tau0_ms")).unwrap();
        BatchQueue::new(self.number("rho") / time.per_job(), time).unwrap()
    }

    fn limited_batch_queue(&self) -> LimitedBatchQueue {
        let (time, largest) =
            (BatchTime::new(self.number("alpha_ms"), self.number("tau0_ms")).unwrap(), self.count("bmax"));
        LimitedBatchQueue::new(self.number("load") * largest as f64 / time.of(largest), time, largest).unwrap()
    }

    fn closed(&self) -> ClosedSolution {
        let network = ClosedNetwork::new(self.number("Z"), &[Station::Queue(self.number("S"))]).unwrap();
        network.solve(self.count("N")).unwrap()
    }

    fn inferno(&self) -> Inferno {
        let number = |name| self.number(name);
        let (tokens_in, tokens_out, beta, gamma) = (number("in"), number("out"), number("beta"), number("gamma"));
        let prompt = (beta + gamma) * tokens_in;
        let outputs = beta * tokens_out + gamma * tokens_out * (tokens_in + (tokens_out + 1.0) / 2.0);
        Inferno {
            rate: number("rps") / 1e3,
            slots: self.count("maxBatch") as usize,
            queue: self.count("maxQueue") as usize,
            alpha: number("alpha"),
            delta: (prompt + outputs) / (1.0 + tokens_out),
            prompt,
            tokens_out,
        }
    }
}

/// The server of llm-inferno/queue-analysis, one chunk per prompt; times in milliseconds. A request takes `(1 + out)(alpha + B delta)` among `B`.
struct Inferno {
    rate: f64,
    slots: usize,
    queue: usize,
    alpha: f64,
    delta: f64,
    prompt: f64,
    tokens_out: f64,
}

impl Inferno {
    fn time(&self, batch: f64) -> f64 {
        (1.0 + self.tokens_out) * (self.alpha + batch * self.delta)
    }

    fn rate_of(&self, batch: usize) -> f64 {
        batch as f64 / self.time(batch as f64)
    }

    fn summary(&self) -> BirthDeathSummary {
        let rate = |n: usize| self.rate_of(n.min(self.slots));
        let chain = BirthDeath::new(self.rate, rate, Some(self.slots + self.queue)).unwrap();
        chain.with_slots(self.slots).unwrap().summary().unwrap()
    }

    fn prefill(&self) -> f64 {
        (self.alpha + (self.summary().mean_in_service - 1.0) * self.delta).max(0.0) + self.prompt
    }

    fn itl(&self) -> f64 {
        (self.summary().mean_service() - self.prefill()) / self.tokens_out
    }
}

/// The quantity of a row as this crate computes it.
fn recompute(row: &Row) -> Option<f64> {
    let inputs = Inputs(row);
    let (number, count) = (|name| inputs.number(name), |name| inputs.count(name));
    Some(match row.text("quantity") {
        "probability of waiting C(14,10)" => inputs.call_centre().probability_of_waiting(),
        "service level P(W<=20 s)" => inputs.call_centre().service_level(number("asa_min")).unwrap(),
        "occupancy" => Mmc::new(number("a"), 1.0, count("servers")).unwrap().load(),
        "positions after shrinkage (ceil raw/(1-s))" => {
            servers_with_absence(count("raw"), number("shrinkage")).unwrap() as f64
        }
        "Erlang C" => erlang_c(count("servers"), number("offered_load")).unwrap(),
        "Erlang B" => erlang_b(count("servers"), number("offered_load")).unwrap(),
        "M/M/1 mean wait (PK)" => {
            let wait = Mg1::new(number("lambda"), inputs.service()).unwrap().mean_wait();
            assert!((wait / Mm1::new(number("lambda"), number("ES")).unwrap().mean_wait() - 1.0).abs() < 1e-12);
            wait
        }
        "M/E2/1 mean wait" | "M/G/1 mean wait, SCV 4" => {
            Mg1::new(number("lambda"), inputs.service()).unwrap().mean_wait()
        }
        "M/G/1 second moment of wait = 2W^2 + lam*ES3/(3(1-rho))" => {
            Mg1::new(number("lambda"), inputs.service()).unwrap().wait_second_moment().unwrap()
        }
        "M/D/1 mean wait" => Md1::new(number("lambda"), number("D")).unwrap().mean_wait(),
        "M/D/1 waiting-time quantile" => {
            Md1::new(number("lambda"), number("D")).unwrap().wait_quantile(number("q")).unwrap()
        }
        "M/G/1-PS mean sojourn" => ProcessorSharing::new(number("lambda"), number("ES")).unwrap().mean_sojourn(),
        "M/G/1-PS sojourn of a job of size 3" => {
            ProcessorSharing::new(number("lambda"), number("ES")).unwrap().mean_sojourn_of(number("x")).unwrap()
        }
        "M/M/c waiting-time quantile" => {
            let rate = number("offered_load") * number("mu");
            let queue = Mmc::new(rate, 1.0 / number("mu"), count("servers")).unwrap();
            queue.wait_quantile(number("q")).unwrap()
        }
        "exact mean wait" => inputs.exact_wait() * number("ES"),
        "Cosmetatos / exact" => {
            let queue = Mdc::new(inputs.offered(), 1.0, count("servers")).unwrap();
            queue.mean_wait_cosmetatos() / queue.mean_wait()
        }
        "Allen-Cunneen / exact" => inputs.wait_by(WaitFormula::AllenCunneen) / inputs.exact_wait(),
        "Kimura / exact" => inputs.wait_by(WaitFormula::Kimura) / inputs.exact_wait(),
        "Sakasegawa / exact" => {
            let service = Service::exponential(1.0).unwrap();
            let queue = Mgc::new(inputs.offered(), service, count("servers")).unwrap();
            queue.mean_wait_by(WaitFormula::Sakasegawa).unwrap() / queue.exponential().mean_wait()
        }
        "Avg_TTFT single (M/D/1)" => mean_sojourn_in_stages(number("R"), number("D"), 1).unwrap(),
        "Avg_TTFT inter-op 2" => mean_sojourn_in_stages(number("R"), number("D"), 2).unwrap(),
        "Avg_TTFT intra-op 2" => mean_sojourn_sped_up(number("R"), number("D"), number("K")).unwrap(),
        "alpha (least squares)" => BatchTime::fit(&inputs.batches(false)).unwrap().0.per_job(),
        "tau0 (least squares)" => BatchTime::fit(&inputs.batches(false)).unwrap().0.per_batch(),
        "R^2 of tau(b)" => BatchTime::fit(&inputs.batches(false)).unwrap().1.r_squared,
        "R^2 of energy per batch c(b)" => fit_line(&inputs.batches(true)).unwrap().r_squared,
        "closed-form bound phi" => inputs.batch_queue().mean_sojourn_bound(),
        "exact mean latency E[W]" => inputs.batch_queue().mean_sojourn(),
        "mean latency with a largest batch" => inputs.limited_batch_queue().mean_sojourn(),
        "mean batch with a largest batch" => inputs.limited_batch_queue().mean_batch(),
        "closed-loop throughput" => {
            let (rate, think) = (1.0 / number("S"), number("Z"));
            let clients = BirthDeath::closed(count("N") as usize, think, |_| rate).unwrap().summary().unwrap();
            let throughput = inputs.closed().throughput;
            assert!((clients.throughput / throughput - 1.0).abs() < 1e-9, "{}", row.id());
            throughput
        }
        "closed-loop response time = N/X - Z" => inputs.closed().response_time,
        "avg response time" => inputs.inferno().summary().mean_sojourn(),
        "avg wait" => inputs.inferno().summary().mean_wait(),
        "avg number in service" => inputs.inferno().summary().mean_in_service,
        "avg TTFT" | "avg TTFT (target 60)" => {
            let server = inputs.inferno();
            server.summary().mean_wait() + server.prefill() + server.itl()
        }
        "avg ITL" => inputs.inferno().itl(),
        // The source stays a thousandth below the rate of a full batch.
        "max RPS" => {
            let server = inputs.inferno();
            server.rate_of(server.slots) * 0.999e3
        }
        "mean-field batch size" => {
            let server = inputs.inferno();
            find_root_above(|batch| server.rate * server.time(batch) - batch, 0.0, 1.0, Tolerance::TIGHT).unwrap()
        }
        _ => return None,
    })
}

#[test]
fn published_numbers_are_reproduced() {
    reproduce(TABLE, ROWS, SKIPPED, 1e-12, recompute);
}
